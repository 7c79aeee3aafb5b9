/* Draws from a narrow law's table, added up over the terms of a wide one.
 *
 * Twins: `NarrowSums` and `CumulativeTable.settled` (core/mechanisms/cumulative.py). The same words give the same
 * integers. Nothing outside of the lengths given is touched.
 */

#include <stdint.h>

#define BLOCK 1024
#define UNDECIDED 0x8000u /* guide's numbers from here on are those of undecided cells */
#define MOST_KEPT 4       /* terms whose multipliers stand in registers */
#define MOST_TERMS 64

/* What a draw of an undecided cell reaches, by 48 bits more; -1 where they tie with a value. */
static inline int64_t settle(uint16_t bits, uint64_t word, uint32_t cell, const uint16_t *first, const uint64_t *high)
{
    word = (uint64_t)bits << 48 | word >> 16;
    int64_t passed = first[cell];
    passed += high[passed] < word;
    if (__builtin_expect(high[passed] <= word, 0)) { /* a cell mostly has one value */
        while (high[passed] < word)
            passed++;
        if (high[passed] == word)
            return -1;
    }
    return passed;
}

/* Sums of a block with undecided cells among them are only noted, and settled when the block is done: what is undecided
 * cannot be foreseen by a processor, and a wrong guess costs it as much as three sums. `terms` is a constant wherever it
 * is at most MOST_KEPT, so that the inner loops are written out.
 */
static inline __attribute__((always_inline)) int64_t draw(const uint16_t *leading, int64_t count, int64_t terms,
                                                          const uint16_t *guide, const uint64_t *words, int64_t spare,
                                                          const uint16_t *first, const uint64_t *high,
                                                          const int64_t *multipliers, int64_t offset, int64_t *sums)
{
    const uint64_t *end = words + spare;
    int64_t kept[MOST_KEPT];
    uint16_t undecided[BLOCK];
    uint32_t listed[BLOCK];
    for (int64_t term = 0; term < terms && term < MOST_KEPT; term++)
        kept[term] = multipliers[term];
    for (int64_t start = 0; start < count; start += BLOCK) {
        const uint16_t *block = leading + start;
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        int64_t *into = sums + start, noted = 0;
        _Pragma("GCC unroll 2") for (int64_t i = 0; i < size; i++) {
            int64_t sum = offset;
            uint32_t any = 0;
            _Pragma("GCC unroll 4") for (int64_t term = 0; term < terms; term++) {
                uint32_t reached = guide[block[term * count + i]];
                any |= reached;
                sum += (terms <= MOST_KEPT ? kept[term] : multipliers[term]) * reached;
            }
            into[i] = sum;
            if (__builtin_expect(any >= UNDECIDED, 0))
                undecided[noted++] = (uint16_t)i;
        }
        for (int64_t k = 0; k < noted;) { /* first which draws they are, as many as there is room for, then what they reach */
            int64_t found = 0;
            for (; k < noted && found + terms <= BLOCK; k++)
                for (int64_t term = 0; term < terms; term++) {
                    listed[found] = (uint32_t)(undecided[k] * MOST_TERMS + term);
                    found += guide[block[term * count + undecided[k]]] >= UNDECIDED;
                }
            if (found > end - words)
                return 1;
            for (int64_t f = 0; f < found; f++) {
                int64_t i = listed[f] / MOST_TERMS, term = listed[f] % MOST_TERMS;
                uint16_t bits = block[term * count + i];
                uint32_t reached = guide[bits];
                int64_t passed = settle(bits, *words++, reached - UNDECIDED, first, high);
                if (passed < 0)
                    return 1;
                into[i] += multipliers[term] * (passed - reached);
            }
        }
    }
    return 0;
}

/* Add up draws: by their leading 16 bits, and those that these leave undecided by 48 bits more.
 *
 * leading:     terms * count, term by term.
 * guide:       2^16; how many table values the draw reaches, or UNDECIDED plus the number of an undecided cell.
 * words:       spare; the leading 48 bits of each follow the 16 of an undecided draw, sum by sum and term by term.
 * first:       by undecided cell; how many of the table's values are below all of its words.
 * high:        the table's values, their leading 64 bits, ascending, and behind them the largest word.
 * multipliers: terms, K_0 to K_m.
 * offset:      added to every sum.
 * sums:        count; written: offset + sum_t K_t (values that draw t reaches).
 *
 * |K_t| 2^16 added up over terms, and |offset|, are below 2^62 each (the caller's assertion): no integer overflows.
 * Returns 0; or 1 where there are too few words, or more than MOST_TERMS terms, or where a draw ties with a value, so that
 * 64 more bits must decide: then the sums are not to be used.
 */
int64_t farthing_draw(const uint16_t *leading, int64_t count, int64_t terms, const uint16_t *guide,
                      const uint64_t *words, int64_t spare, const uint16_t *first, const uint64_t *high,
                      const int64_t *multipliers, int64_t offset, int64_t *sums)
{
    if (terms > MOST_TERMS)
        return 1;
    switch (terms) {
    case 1:
        return draw(leading, count, 1, guide, words, spare, first, high, multipliers, offset, sums);
    case 2:
        return draw(leading, count, 2, guide, words, spare, first, high, multipliers, offset, sums);
    case 3:
        return draw(leading, count, 3, guide, words, spare, first, high, multipliers, offset, sums);
    case 4:
        return draw(leading, count, 4, guide, words, spare, first, high, multipliers, offset, sums);
    default:
        return draw(leading, count, terms, guide, words, spare, first, high, multipliers, offset, sums);
    }
}
