/* Sums over records of linear predictors: margins of rows, and sums of rows, or of their outer products, times numbers,
 * each number its record's own.
 *
 * Twins: `BlockProblem` (core/queries/sums/blocks.py), and `SingleRecords` (core/queries/sums/single.py), whose products BLAS
 * adds up in some order. Here they are added up lane by lane in an order that public shapes decide, the same on every
 * processor, and err by no more than what is charged for any order. No branch asks for a number, and no
 * loop's length does. No function here reads or writes outside of the lengths it is given.
 *
 * This file includes itself, once for each set of instructions; what is above #else is then of that set.
 */

#ifdef TARGET

/* The product of two vectors. */
TARGET static double NAME(dot)(const double *x, const double *theta, int64_t width)
{
    doubles one = {0}, two = {0};
    int64_t j = 0;
    for (; j + 8 <= width; j += 8) {
        one += *(const doubles *)(x + j) * *(const doubles *)(theta + j);
        two += *(const doubles *)(x + j + 4) * *(const doubles *)(theta + j + 4);
    }
    if (j + 4 <= width) {
        one += *(const doubles *)(x + j) * *(const doubles *)(theta + j);
        j += 4;
    }
    one += two;
    double total = (one[0] + one[1]) + (one[2] + one[3]);
    for (; j < width; j++)
        total += x[j] * theta[j];
    return total;
}

/* The products of four rows with a vector, each made as `dot` makes it: in turn, they do not wait for one another. */
TARGET static void NAME(dot_four)(const double *p, const double *theta, int64_t width, double *margin)
{
    const double *q = p + width, *r = q + width, *s = r + width;
    doubles p_one = {0}, q_one = {0}, r_one = {0}, s_one = {0}, p_two = {0}, q_two = {0}, r_two = {0}, s_two = {0};
    int64_t j = 0;
    for (; j + 8 <= width; j += 8) {
        doubles one = *(const doubles *)(theta + j), two = *(const doubles *)(theta + j + 4);
        p_one += *(const doubles *)(p + j) * one, p_two += *(const doubles *)(p + j + 4) * two;
        q_one += *(const doubles *)(q + j) * one, q_two += *(const doubles *)(q + j + 4) * two;
        r_one += *(const doubles *)(r + j) * one, r_two += *(const doubles *)(r + j + 4) * two;
        s_one += *(const doubles *)(s + j) * one, s_two += *(const doubles *)(s + j + 4) * two;
    }
    if (j + 4 <= width) {
        doubles one = *(const doubles *)(theta + j);
        p_one += *(const doubles *)(p + j) * one;
        q_one += *(const doubles *)(q + j) * one;
        r_one += *(const doubles *)(r + j) * one;
        s_one += *(const doubles *)(s + j) * one;
        j += 4;
    }
    p_one += p_two, q_one += q_two, r_one += r_two, s_one += s_two;
    margin[0] = (p_one[0] + p_one[1]) + (p_one[2] + p_one[3]);
    margin[1] = (q_one[0] + q_one[1]) + (q_one[2] + q_one[3]);
    margin[2] = (r_one[0] + r_one[1]) + (r_one[2] + r_one[3]);
    margin[3] = (s_one[0] + s_one[1]) + (s_one[2] + s_one[3]);
    for (; j < width; j++) {
        margin[0] += p[j] * theta[j];
        margin[1] += q[j] * theta[j];
        margin[2] += r[j] * theta[j];
        margin[3] += s[j] * theta[j];
    }
}

/* The same in single precision, of a vector whose numbers are zeros where no bit is kept. */
TARGET static float NAME(dot_single)(const float *x, uint32_t kept, const float *theta, int64_t width)
{
    singles one = {0}, two = {0};
    int64_t j = 0;
    for (; j + 16 <= width; j += 16) {
        one += EIGHT(x + j, kept) * *(const singles *)(theta + j);
        two += EIGHT(x + j + 8, kept) * *(const singles *)(theta + j + 8);
    }
    if (j + 8 <= width) {
        one += EIGHT(x + j, kept) * *(const singles *)(theta + j);
        j += 8;
    }
    one += two;
    float total = ((one[0] + one[1]) + (one[2] + one[3])) + ((one[4] + one[5]) + (one[6] + one[7]));
    for (; j < width; j++)
        total += bits_of_single(x + j, kept) * theta[j];
    return total;
}

/* Add four rows, each times its number, to a total. */
TARGET static void NAME(add_four)(const double *p, const double *q, const double *r, const double *s,
                                  const double *numbers, int64_t width, double *total)
{
    double a = numbers[0], b = numbers[1], c = numbers[2], d = numbers[3];
    int64_t j = 0;
    for (; j + 4 <= width; j += 4)
        *(doubles *)(total + j) += (a * *(const doubles *)(p + j) + b * *(const doubles *)(q + j)) +
                                   (c * *(const doubles *)(r + j) + d * *(const doubles *)(s + j));
    for (; j < width; j++)
        total[j] += (a * p[j] + b * q[j]) + (c * r[j] + d * s[j]);
}

/* The same in single precision, each row zeros where none of its bits is kept. */
TARGET static void NAME(add_four_single)(const float *const *of, const uint32_t *kept, const float *numbers,
                                         int64_t width, float *total)
{
    const float *p = of[0], *q = of[1], *r = of[2], *s = of[3];
    const uint32_t of_p = kept[0], of_q = kept[1], of_r = kept[2], of_s = kept[3];
    float a = numbers[0], b = numbers[1], c = numbers[2], d = numbers[3];
    int64_t j = 0;
    for (; j + 8 <= width; j += 8)
        *(singles *)(total + j) += (a * EIGHT(p + j, of_p) + b * EIGHT(q + j, of_q)) +
                                   (c * EIGHT(r + j, of_r) + d * EIGHT(s + j, of_s));
    for (; j < width; j++)
        total[j] += (a * bits_of_single(p + j, of_p) + b * bits_of_single(q + j, of_q)) +
                    (c * bits_of_single(r + j, of_r) + d * bits_of_single(s + j, of_s));
}

/* See `farthing_margins`. */
TARGET static void NAME(margins)(const double *x, int64_t rows, int64_t width, const double *theta, double *margin)
{
    const char *last = (const char *)(x + rows * width - 1);
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * width) {
        const char *behind = (const char *)x + AHEAD;
        for (int64_t line = 0; line < 4 * width * 8; line += LINE)
            __builtin_prefetch(last - behind > line ? behind + line : last);
        NAME(dot_four)(x, theta, width, margin + i);
    }
    for (; i < rows; i++, x += width)
        margin[i] = NAME(dot)(x, theta, width);
}

/* Make the numbers of some records; see `farthing_sum`. */
TARGET static void NAME(numbers)(const double *margin, const double *weights, const double *highest,
                                 const uint8_t *included, int64_t rows, double *score)
{
    for (int64_t i = 0; i < rows; i++)
        score[i] = ordinary(score[i] * weights[i], is_finite(margin[i]), LEAST_NUMBER);
    if (included)
        for (int64_t i = 0; i < rows; i++)
            score[i] = selected(score[i], included[i] != 0);
    if (highest)
        for (int64_t i = 0; i < rows; i++)
            score[i] = within(score[i], highest[i]);
}

/* Add up rows times their numbers; see `farthing_sum`. */
TARGET static void NAME(add_rows)(const double *x, int64_t rows, int64_t width, const double *numbers, double *total,
                                  int64_t following)
{
    /* While these rows are in the cache, memory brings those behind them. */
    const char *behind = (const char *)(x + rows * width), *last = behind + following * width * 8 - 1;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * width) {
        for (int64_t line = 0; following && line < 4 * width * 8; line += LINE)
            __builtin_prefetch(last - behind > line ? behind + line : last, 0, 2);
        behind += 4 * width * 8;
        NAME(add_four)(x, x + width, x + 2 * width, x + 3 * width, numbers + i, width, total);
    }
    for (; i < rows; i++, x += width)
        for (int64_t j = 0; j < width; j++)
            total[j] += numbers[i] * x[j];
}

/* Add some rows' products of columns `row` to `row + TILE` and `column` to `column + 8 * vectors`; see `outer`. */
TARGET static inline __attribute__((always_inline)) void NAME(tile)(const double *x, const double *times, int64_t rows,
                                                                   int64_t stride, int vectors, double *total)
{
    wide sums[TILE][2];
    for (int j = 0; j < TILE; j++)
        for (int k = 0; k < vectors; k++)
            sums[j][k] = *(const wide *)(total + j * stride + k * LANES);
    for (int64_t i = 0; i < rows; i++, x += stride, times += stride) {
        wide first = *(const wide *)x, second = vectors > 1 ? *(const wide *)(x + LANES) : first;
#pragma GCC unroll 8
        for (int j = 0; j < TILE; j++) {
            sums[j][0] += times[j] * first;
            if (vectors > 1)
                sums[j][1] += times[j] * second;
        }
    }
    for (int j = 0; j < TILE; j++)
        for (int k = 0; k < vectors; k++)
            *(wide *)(total + j * stride + k * LANES) = sums[j][k];
}

/* See `farthing_outer`. */
TARGET static void NAME(outer)(const double *x, int64_t rows, int64_t width, int64_t stride, const double *numbers,
                               double *room, double *total, int64_t following)
{
    const char *behind = (const char *)(x + rows * width), *last = behind + following * width * 8 - 1;
    double *copied = room, *times = room + SOME * stride;
    int64_t tiles = 0, each;
    for (int64_t j = 0; j < stride; j += TILE)
        tiles += (stride - (j - j % 8) + 2 * LANES - 1) / (2 * LANES);
    each = (SOME * width * 8 + tiles - 1) / tiles;
    for (int64_t start = 0; start < rows; start += SOME) {
        int64_t some = rows - start < SOME ? rows - start : SOME;
        for (int64_t i = 0; i < some; i++, x += width)
            for (int64_t j = 0; j < width; j++) {
                copied[i * stride + j] = x[j];
                times[i * stride + j] = numbers[start + i] * x[j];
            }
        for (int64_t j = 0; j < stride; j += TILE)
            for (int64_t k = j - j % 8; k < stride; k += 2 * LANES) {
                double *at = total + j * stride + k;
                /* While these are in the cache, memory brings what is behind them, a few lines for each of the tiles. */
                for (int64_t line = 0; following && line < each; line += LINE, behind += LINE)
                    __builtin_prefetch(last > behind ? behind : last, 0, 2);
                if (k + 2 * LANES <= stride)
                    NAME(tile)(copied + k, times + j, some, stride, 2, at);
                else
                    NAME(tile)(copied + k, times + j, some, stride, 1, at);
            }
    }
}

/* See `farthing_single_margins`. */
TARGET static void NAME(single_margins)(const double *table, int64_t stride, int64_t width, int64_t first,
                                        const int64_t *rows, const uint8_t *included, int64_t count,
                                        const float *theta, double *margin, double *target)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t behind = i + FETCHED < count ? i + FETCHED : count - 1;
        const char *next = (const char *)(table + (rows ? rows[behind] : behind) * stride);
        for (int64_t line = 0; line < stride * 8; line += LINE)
            __builtin_prefetch(next + line);
        const double *record = table + (rows ? rows[i] : i) * stride;
        margin[i] = (double)NAME(dot_single)((const float *)record, KEPT(included, i), theta, width);
        target[i] = bits_of(record + first, KEPT(included, i));
    }
}

/* Add up the rows of one part times their numbers; see `farthing_single_sum`. */
TARGET static void NAME(single_part)(const double *table, int64_t stride, int64_t width, const int64_t *rows,
                                     const uint8_t *included, int64_t start, int64_t count, const float *numbers,
                                     float *total)
{
    const float *of[4];
    uint32_t kept[4];
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int64_t k = 0; k < 4; k++) {
            of[k] = (const float *)(table + (rows ? rows[start + i + k] : start + i + k) * stride);
            kept[k] = KEPT(included, start + i + k);
        }
        NAME(add_four_single)(of, kept, numbers + i, width, total);
    }
    for (; i < count; i++) {
        of[0] = (const float *)(table + (rows ? rows[start + i] : start + i) * stride);
        kept[0] = KEPT(included, start + i);
        for (int64_t j = 0; j < width; j++)
            total[j] += numbers[i] * bits_of_single(of[0] + j, kept[0]);
    }
}

#else

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE 64     /* bytes that memory brings at a time */
#define FETCHED 12  /* records of a list ahead that memory is asked for */
#define AHEAD 16384 /* bytes ahead that memory is asked for where rows follow one another: some microseconds' worth */
#define SOME 32     /* rows that are copied to where a product stays in the first cache: 32 KB of them, twice, at d = 64 */
#define PART 32     /* core.queries.sums.single.PART_ROWS */

/* core.data.limits: no record's number is smaller, for a product that is denormal takes long. */
#define LEAST_NUMBER 0x1p-200
#define LEAST_SINGLE 0x1p-50

typedef double doubles __attribute__((vector_size(32), aligned(8), may_alias));
typedef double eights __attribute__((vector_size(64), aligned(8), may_alias));
typedef float singles __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(32), aligned(4), may_alias));

/* All bits of a record that is included, or none: what is left out is read, and zeros stand in its place before any float
 * operation, whatever it was. So it is the same bytes as a null record, which is zeros in memory.
 */
#define KEPT(included, i) ((included) ? -(uint32_t)((included)[i] != 0) : ~(uint32_t)0)

/* Eight numbers of a row, with the bits that are kept. */
#define EIGHT(x, kept) ((singles)(*(const words *)(x) & (kept)))

static inline float bits_of_single(const float *at, uint32_t kept)
{
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    bits &= kept;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double bits_of(const double *at, uint32_t kept)
{
    uint64_t bits;
    memcpy(&bits, at, sizeof bits);
    bits &= (uint64_t)kept << 32 | kept;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int is_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

/* A number where it is finite and counts, else zero: by a mask of its bits, not by a branch. */
static inline double selected(double value, int counts)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= -(uint64_t)(counts & is_finite(value));
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* The same, zero where it is below a size, too. */
static inline double ordinary(double value, int counts, double least)
{
    return selected(value, counts & ((value >= least) | (value <= -least)));
}

/* A finite number, clipped to a size. */
static inline double within(double value, double highest)
{
    value = value < highest ? value : highest;
    return value > -highest ? value : -highest;
}

/* The nearest integer, ties to even, of a number below 2^62 in size: adding 2^52 leaves no digits behind the point. */
static inline int64_t nearest(double value)
{
    double size = value < 0 ? -value : value, rounded = (size + 0x1p52) - 0x1p52;
    size = size < 0x1p52 ? rounded : size;
    return (int64_t)(value < 0 ? -size : size);
}

/* As many sums at a time as registers hold: each is of one entry, so how many decides no sum's order. */
#define TARGET
#define NAME(of) of##_any
#define wide doubles
#define LANES 4
#define TILE 4
#include "rows.c"
#undef TARGET
#undef NAME

#ifdef __x86_64__
#define TARGET __attribute__((target("avx2")))
#define NAME(of) of##_avx2
#include "rows.c"
#undef TARGET
#undef NAME
#undef wide
#undef LANES
#undef TILE
#define TARGET __attribute__((target("avx512f")))
#define NAME(of) of##_avx512
#define wide eights
#define LANES 8
#define TILE 8
#include "rows.c"
#define CHOOSE(of) \
    (__builtin_cpu_supports("avx512f") ? of##_avx512 : __builtin_cpu_supports("avx2") ? of##_avx2 : of##_any)
#else
#define CHOOSE(of) of##_any
#endif

/* Margins x.theta of rows that stand one after the other.
 *
 * x:      rows * width.
 * theta:  width.
 * margin: rows; written.
 *
 * Returns 0.
 */
int64_t farthing_margins(const double *x, int64_t rows, int64_t width, const double *theta, double *margin)
{
    CHOOSE(margins)(x, rows, width, theta, margin);
    return 0;
}

/* Add rows times their numbers to a sum, and make the margins of the rows that follow.
 *
 * A record's number is its score times its weight, zero by selection where that or its margin is not finite, where it is
 * below LEAST_NUMBER or the record left out, clipped to its highest.
 *
 * x:         (rows + following) * width.
 * score:     rows; written over.
 * margin:    rows, and then written over by those that follow; or NULL: the scores are the numbers, and what stands below
 *            is not read but for the sums.
 * weights:   rows.
 * highest:   rows, or NULL: nothing is clipped.
 * included:  rows, 0 or 1, or NULL: all.
 * sums:      width; added to.
 * theta:     width; not read where nothing follows.
 * following: how many rows follow.
 *
 * Returns 0.
 */
int64_t farthing_sum(const double *x, int64_t rows, int64_t width, double *score, double *margin,
                     const double *weights, const double *highest, const uint8_t *included, double *sums,
                     const double *theta, int64_t following)
{
    if (margin)
        CHOOSE(numbers)(margin, weights, highest, included, rows, score);
    CHOOSE(add_rows)(x, rows, width, score, sums, following);
    if (following)
        CHOOSE(margins)(x + rows * width, following, width, theta, margin);
    return 0;
}

/* Add rows' outer products with themselves, times their numbers, to a sum: what is on and above the diagonal.
 *
 * An entry's products (numbers[i] * x[i][j]) * x[i][k] are added up one row after the other.
 *
 * x:       rows * width.
 * stride:  width, rounded up to a multiple of 8.
 * numbers: rows.
 * room:    64 * stride, zeros before the first call, as what stands behind a row's width stays; written over.
 * sums:    stride * stride; added to. Below the diagonal some entries are, and others not.
 * following: how many rows stand behind these and are read next: memory brings them meanwhile.
 *
 * Returns 0.
 */
int64_t farthing_outer(const double *x, int64_t rows, int64_t width, int64_t stride, const double *numbers,
                       double *room, double *sums, int64_t following)
{
    CHOOSE(outer)(x, rows, width, stride, numbers, room, sums, following);
    return 0;
}

/* Add a part's sums, in steps, as integers to a total, and put zeros in their place.
 *
 * sums:  count; zeros afterwards.
 * step:  a power of two.
 * total: count; added to, wrapping around.
 *
 * Returns 0; 1, and nothing is added, where a sum is not below 2^62 steps.
 */
int64_t farthing_round(double *sums, int64_t count, double step, int64_t *total)
{
    int64_t broken = 0;
    for (int64_t j = 0; j < count; j++) {
        sums[j] /= step;
        broken |= !(sums[j] < 0x1p62 && sums[j] > -0x1p62);
    }
    if (!broken)
        for (int64_t j = 0; j < count; j++)
            total[j] = (int64_t)((uint64_t)total[j] + (uint64_t)nearest(sums[j]));
    memset(sums, 0, (size_t)count * sizeof *sums);
    return broken;
}

/* Margins of records in single precision, and their targets.
 *
 * table:    records of `stride` doubles each: `width` singles, and from double `first` on target, weight and inverse.
 * units:    how many records there are.
 * rows:     count, which records; or NULL: the first `count`.
 * included: count, 0 or 1, or NULL: all. Records that are left out are zeros.
 * theta:    width.
 * at:       width; written: theta in single precision, zero below LEAST_SINGLE.
 * margin:   count; written.
 * target:   count; written.
 *
 * Returns 0; 1, and nothing is read, where a row is no record.
 */
int64_t farthing_single_margins(const double *table, int64_t stride, int64_t width, int64_t first, int64_t units,
                                const int64_t *rows, const uint8_t *included, int64_t count, const double *theta,
                                float *at, double *margin, double *target)
{
    int64_t wrong = 0;
    if (rows)
        for (int64_t i = 0; i < count; i++)
            wrong |= (uint64_t)rows[i] >= (uint64_t)units;
    if (wrong)
        return 1;
    for (int64_t j = 0; j < width; j++)
        at[j] = theta[j] < LEAST_SINGLE && theta[j] > -LEAST_SINGLE ? 0 : (float)theta[j];
    CHOOSE(single_margins)(table, stride, width, first, rows, included, count, at, margin, target);
    return 0;
}

/* The sum of records times their numbers, in steps, as integers: parts of 32 records, each in single precision.
 *
 * A record's number is as in `farthing_sum`, LEAST_SINGLE its least and its highest the clip times the inverse of its norm, at most `largest`, and
 * it is rounded to single precision. Records that are left out are zeros, and nothing else asks which they are: so is a
 * null record, and one cannot be told from the other. A part's sum is multiplied by `scale` and truncated.
 *
 * score:    count.
 * margin:   count.
 * included: count, 0 or 1, or NULL: all.
 * scale:    steps in a unit, a power of two.
 * most:     what the squares of all parts' sums, in steps, together stay below.
 * part:     width; written over.
 * total:    width; added to, wrapping around.
 *
 * Returns 0; 1 where the squares do not.
 */
int64_t farthing_single_sum(const double *table, int64_t stride, int64_t width, int64_t first, const int64_t *rows,
                            int64_t count, const double *score, const double *margin, const uint8_t *included,
                            double clip, double largest, float scale, double most, float *part, int64_t *total)
{
    float numbers[PART];
    double squares = 0;
    for (int64_t start = 0; start < count; start += PART) {
        int64_t some = count - start < PART ? count - start : PART;
        for (int64_t k = 0; k < some; k++) {
            int64_t i = start + k;
            const double *beside = table + (rows ? rows[i] : i) * stride + first;
            uint32_t kept = KEPT(included, i);
            double highest = bits_of(beside + 2, kept) * clip, number = score[i] * bits_of(beside + 1, kept);
            highest = highest < largest ? highest : largest;
            numbers[k] = (float)within(ordinary(number, is_finite(margin[i]), LEAST_SINGLE), highest);
        }
        memset(part, 0, (size_t)width * sizeof *part);
        CHOOSE(single_part)(table, stride, width, rows, included, start, some, numbers, part);
        for (int64_t j = 0; j < width; j++) {
            part[j] *= scale;
            squares += (double)part[j] * (double)part[j];
        }
        if (!(squares < most))
            return 1;
        for (int64_t j = 0; j < width; j++)
            total[j] = (int64_t)((uint64_t)total[j] + (uint64_t)(int64_t)part[j]);
    }
    return 0;
}

#endif
