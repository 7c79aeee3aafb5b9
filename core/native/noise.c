/* Draws of discrete Gaussians: a cell from a table, a place in it, and now and then a test.
 *
 * Twins: `Strips.settled` (core/mechanisms/strips.py) and `CumulativeTable.events` (core/mechanisms/cumulative.py), which
 * say what is drawn and why. The same words give the same integers. Nothing outside of the lengths given is touched.
 */

#include <stdint.h>

#define UNDECIDED 0x8000u /* guide's numbers from here on are those of undecided cells */
#define TERMS 14
#define MARGIN 0x1p-40
#define FRACTION 0x1p-53

struct law {
    const uint16_t *guide; /* 2^16; which event it is, or UNDECIDED plus the number of an undecided cell */
    const uint16_t *first; /* by undecided cell; how many of the table's values are below all of its words */
    const uint64_t *high;  /* the table's values, their leading 64 bits, ascending, and behind them the largest word */
    const uint16_t *begins; /* 256; how many of the tests' values are below all words with this first byte */
    const uint64_t *layers; /* the tests' values, as above */
    const double *ends;     /* by cell; expm1(D) */
    int64_t width;          /* bits that a draw begins with: 16, 32 or 64, the first 16 its event's */
    int64_t fine;           /* k; the last ones are its place's */
    int64_t below;          /* how many cells are below zero */
    int64_t test;           /* the number of the event that is the test, behind all cells */
    double twice;           /* 2 s^2 */
};

/* An undecided event, by 48 bits more; -1 where they tie with a value. */
static inline int64_t settle(uint64_t leading, uint64_t word, uint32_t cell, const struct law *law)
{
    const uint64_t *high = law->high;
    word = leading << 48 | word >> 16;
    int64_t passed = law->first[cell];
    passed += high[passed] < word;
    if (__builtin_expect(high[passed] <= word, 0)) { /* a cell mostly has one value */
        while (high[passed] < word)
            passed++;
        if (high[passed] == word)
            return -1;
    }
    return passed;
}

static inline int64_t drawn_of(int64_t event, int64_t place, const struct law *law)
{
    return (int64_t)((uint64_t)(event - law->below) << law->fine) + place;
}

static inline double expm1_of(double d)
{
    double series = 1.0;
    for (int n = TERMS; n > 1; n--)
        series = 1.0 + (d * (1.0 / n)) * series;
    return d * series;
}

/* Whether a test ends: 1, 0, or -1 where its first bits do not say. */
static inline int taken(int64_t cell, int64_t place, uint64_t height, const struct law *law)
{
    int64_t below = cell < law->below, outer = below ? law->below - cell : cell - law->below + 1;
    int64_t left = below ? place : ((int64_t)1 << law->fine) - place;
    double f = (double)left / (double)((int64_t)1 << law->fine);
    double reached = expm1_of(f * (2.0 * (double)outer - f) / law->twice);
    double v = (double)(height >> 11) * FRACTION, end = law->ends[cell];
    if ((v + FRACTION) * end * (1.0 + MARGIN) <= reached)
        return 1;
    return v * end * (1.0 - MARGIN) < reached ? -1 : 0;
}

/* The first bits of a draw, foremost in 64. */
static inline uint64_t bits_of(const void *leading, int64_t i, int64_t width)
{
    if (width == 16)
        return (uint64_t)((const uint16_t *)leading)[i] << 48;
    if (width == 32)
        return (uint64_t)((const uint32_t *)leading)[i] << 32;
    return ((const uint64_t *)leading)[i];
}

/* Write what first bits decide alone, and list all others; `width` is a constant. Returns how many are listed. */
static inline __attribute__((always_inline)) int64_t decided(const struct law *law, const void *leading, int64_t count,
                                                             int64_t width, uint32_t *listed, int64_t *drawn)
{
    const uint16_t *guide = law->guide;
    const uint64_t mask = ((uint64_t)1 << law->fine) - 1, below = (uint64_t)law->below << law->fine;
    const int64_t fine = law->fine;
    const uint32_t test = (uint32_t)law->test;
    int64_t noted = 0;
    _Pragma("GCC unroll 4") for (int64_t i = 0; i < count; i++) {
        uint64_t word = bits_of(leading, i, width) >> (64 - width);
        uint32_t event = guide[word >> (width - 16)];
        drawn[i] = (int64_t)(((uint64_t)event << fine) + (word & mask) - below);
        if (__builtin_expect(event >= test, 0)) /* the test, or an undecided cell */
            listed[noted++] = (uint32_t)i;
    }
    return noted;
}

/* Settle a draw by its first bits, foremost in 64, and its place; a test is listed, and its place kept in `drawn`. Returns
 * 0 where no word is left, and at a tie. */
static inline int begun(const struct law *law, uint64_t bits, int64_t place, int64_t i, const uint64_t **words,
                        const uint64_t *end, uint32_t *listed, int64_t *tests, int64_t *drawn)
{
    int64_t event = law->guide[bits >> 48];
    if (event >= UNDECIDED) {
        if (*words == end || (event = settle(bits >> 48, *(*words)++, (uint32_t)event - UNDECIDED, law)) < 0)
            return 0;
    }
    if (event == law->test)
        listed[(*tests)++] = (uint32_t)i;
    drawn[i] = event == law->test ? place : drawn_of(event, place, law);
    return 1;
}

/* Draw integers.
 *
 * leading: count numbers of the law's width.
 * words:   spare; for undecided events one, then for each test two and for each that failed one, which begins anew.
 * listed:  count; scratch.
 * drawn:   count; written.
 *
 * Returns 0; or 1 where there are too few words, or where 64 bits tie with a value or are too near to what a test compares
 * them with, so that more must decide: then the draws are not to be used.
 */
int64_t farthing_draw(const struct law *law, const void *leading, int64_t count, const uint64_t *words, int64_t spare,
                      uint32_t *listed, int64_t *drawn)
{
    const uint64_t *end = words + spare;
    const int64_t width = law->width;
    const uint64_t mask = ((uint64_t)1 << law->fine) - 1;
    int64_t noted = width == 16   ? decided(law, leading, count, 16, listed, drawn)
                    : width == 32 ? decided(law, leading, count, 32, listed, drawn)
                                  : decided(law, leading, count, 64, listed, drawn);
    int64_t tests = 0;
    for (int64_t k = 0; k < noted; k++) {
        int64_t i = listed[k];
        uint64_t bits = bits_of(leading, i, width);
        if (!begun(law, bits, (int64_t)(bits >> (64 - width) & mask), i, &words, end, listed, &tests, drawn))
            return 1;
    }
    while (tests) { /* in `drawn` stand the places of tests */
        int64_t failed = 0;
        if (2 * tests > end - words)
            return 1;
        for (int64_t k = 0; k < tests; k++, words += 2) {
            int64_t i = listed[k], cell = law->begins[words[0] >> 56];
            while (law->layers[cell] < words[0])
                cell++;
            if (law->layers[cell] == words[0])
                return 1;
            int found = taken(cell, drawn[i], words[1], law);
            if (found < 0)
                return 1;
            if (found)
                drawn[i] = drawn_of(cell, drawn[i], law);
            else
                listed[failed++] = (uint32_t)i;
        }
        if (failed > end - words)
            return 1;
        const uint64_t *fresh = words;
        words += failed;
        tests = 0;
        for (int64_t k = 0; k < failed; k++) {
            if (!begun(law, fresh[k], (int64_t)(fresh[k] & mask), listed[k], &words, end, listed, &tests, drawn))
                return 1;
        }
    }
    return 0;
}
