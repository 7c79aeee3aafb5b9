/* Sums over records of linear predictors: margins of rows, and sums of rows, or of their outer products, times numbers,
 * each number its record's own.
 *
 * Twins: `BlockProblem` (core/queries/sums/blocks.py), and `SingleRecords` (core/queries/sums/single.py), whose products BLAS
 * adds up in some order. Here they are added up lane by lane in an order that public shapes decide, the same on every
 * processor, and err by no more than what is charged for any order. No branch asks for a number, and no
 * loop's length does. In double precision a product and its addition are one rounding, by operations that say so, never by
 * the compiler's choice. No function here reads or writes outside of the lengths it is given.
 *
 * This file includes itself, once for each set of instructions; what is above #else is then of that set.
 */

#ifdef TARGET

/* The products of some rows with a vector. Eight lanes add up every eighth product, fused, zeros standing behind the last
 * one; then they are added up: two and two that are four apart, neighbours, and the two that are left. Rows in turn do not
 * wait for one another.
 */
TARGET static inline __attribute__((always_inline)) void NAME(dots)(const double *x, const double *theta, int64_t width,
                                                                   int rows, double *margin)
{
    wide sums[4][EIGHTH] = {{{0}}};
    int64_t j = 0;
    for (; j + 8 <= width; j += 8)
#pragma GCC unroll 4
        for (int k = 0; k < EIGHTH; k++) {
            wide of = *(const wide *)(theta + j + k * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                sums[i][k] = NAME(fused)(*(const wide *)(x + i * width + j + k * LANES), of, sums[i][k]);
        }
    if (j < width)
#pragma GCC unroll 4
        for (int k = 0; k < EIGHTH; k++) {
            wide of = NAME(first)(theta + j + k * LANES, width - j - k * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                sums[i][k] = NAME(fused)(NAME(first)(x + i * width + j + k * LANES, width - j - k * LANES), of, sums[i][k]);
        }
    NAME(added)(sums, rows, margin);
}

/* The product of two vectors in single precision, zeros standing for the first where no bit of it is kept. */
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

/* Add rows times their numbers to some columns' sums: `vectors` wide ones, and `left` columns behind them. */
TARGET static inline __attribute__((always_inline)) void NAME(columns)(const double *x, int64_t rows, int64_t width,
                                                                      int vectors, int64_t left, const double *numbers,
                                                                      double *total)
{
    wide sums[COLUMNS], last = NAME(first)(total + vectors * LANES, left);
#pragma GCC unroll 16
    for (int k = 0; k < vectors; k++)
        sums[k] = *(const wide *)(total + k * LANES);
    for (int64_t i = 0; i < rows; i++, x += width) {
        wide number = NAME(all)(numbers[i]);
#pragma GCC unroll 16
        for (int k = 0; k < vectors; k++)
            sums[k] = NAME(fused)(number, *(const wide *)(x + k * LANES), sums[k]);
        if (left)
            last = NAME(fused)(number, NAME(first)(x + vectors * LANES, left), last);
    }
#pragma GCC unroll 16
    for (int k = 0; k < vectors; k++)
        *(wide *)(total + k * LANES) = sums[k];
    memcpy(total + vectors * LANES, &last, (size_t)left * sizeof *total);
}

/* Add four rows, each times its number, to a total, in single precision; a row is zeros where none of its bits is kept. */
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
TARGET static void NAME(margins)(const double *x, int64_t rows, int64_t width, int64_t points, const double *theta,
                                 double *margin)
{
    const char *last = (const char *)(x + rows * width - 1);
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * width) {
        const char *behind = (const char *)x + AHEAD;
        for (int64_t line = 0; line < 4 * width * 8; line += LINE)
            __builtin_prefetch(last - behind > line ? behind + line : last);
        for (int64_t point = 0; point < points; point++)
            NAME(dots)(x, theta + point * width, width, 4, margin + point * rows + i);
    }
    for (; i < rows; i++, x += width)
        for (int64_t point = 0; point < points; point++)
            NAME(dots)(x, theta + point * width, width, 1, margin + point * rows + i);
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

/* Make the numbers of changes of gradients, in place of the scores at the first point; see `farthing_difference`. */
TARGET static void NAME(changes)(const double *margin, const double *weights, const double *inverse,
                                 const uint8_t *included, double clip, double bound, int64_t rows, double *score)
{
    NAME(numbers)(margin, weights, NULL, included, rows, score);
    NAME(numbers)(margin + rows, weights, NULL, included, rows, score + rows);
    if (clip < __builtin_inf())
        for (int64_t i = 0; i < rows; i++) {
            score[i] = within(score[i], inverse[i] * clip);
            score[rows + i] = within(score[rows + i], inverse[i] * clip);
        }
    for (int64_t i = 0; i < rows; i++)
        score[i] = within(score[rows + i] - score[i], inverse[i] * bound);
}

/* Make the numbers of outer products, in place of scores; see `farthing_outer`. */
TARGET static void NAME(factors)(const double *margin, const double *weights, const double *inverse,
                                 const uint8_t *included, double bound, int64_t squared, int64_t rows, double *score)
{
    NAME(numbers)(margin, weights, NULL, included, rows, score);
    if (squared)
        for (int64_t i = 0; i < rows; i++)
            score[i] *= score[i];
    for (int64_t i = 0; i < rows; i++)
        score[i] = within(score[i], inverse[i] * bound * inverse[i]);
}

#define OF_COLUMNS(some)                                                                                               \
    case some:                                                                                                         \
        NAME(columns)(x + j, few, width, some, left, numbers, total + j);                                              \
        break;

/* Add up rows times their numbers; see `farthing_sum`. Some rows at a time, which the first cache holds. */
TARGET static void NAME(add_rows)(const double *x, int64_t rows, int64_t width, const double *numbers, double *total,
                                  int64_t following)
{
    /* While these rows are in the cache, memory brings those behind them. */
    const char *behind = (const char *)(x + rows * width), *last = behind + following * width * 8 - 1;
    for (int64_t few; rows; rows -= few, x += few * width, numbers += few) {
        few = rows < FEW ? rows : FEW;
        for (int64_t line = 0; following && line < few * width * 8; line += LINE)
            __builtin_prefetch(last - behind > line ? behind + line : last, 0, 2);
        behind += few * width * 8;
        int64_t j = 0, left = 0;
        for (; width - j >= COLUMNS * LANES; j += COLUMNS * LANES)
            NAME(columns)(x + j, few, width, COLUMNS, 0, numbers, total + j);
        left = (width - j) % LANES;
        switch ((width - j) / LANES) {
            EACH_COLUMNS
        }
    }
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
            wide number = NAME(all)(times[j]);
            sums[j][0] = NAME(fused)(number, first, sums[j][0]);
            if (vectors > 1)
                sums[j][1] = NAME(fused)(number, second, sums[j][1]);
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
#define FEW 8       /* rows that are added up before others are */
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
 * operation, whatever it was. So it is the same bytes as an excluded row, which is zeros in memory.
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

/* What differs between sets of instructions: `wide` of LANES numbers, EIGHTH of which are eight; a product and a sum in one
 * rounding; one number in all lanes; the first of some numbers, zeros behind them; and sums of eight lanes added up.
 * As many sums at a time as registers hold: each is of one entry, so how many decides no sum's order.
 */
typedef double wide_any __attribute__((vector_size(16), aligned(8), may_alias));

static inline wide_any fused_any(wide_any a, wide_any b, wide_any c)
{
    return (wide_any){__builtin_fma(a[0], b[0], c[0]), __builtin_fma(a[1], b[1], c[1])};
}

static inline wide_any all_any(double number)
{
    return (wide_any){number, number};
}

static inline wide_any first_any(const double *x, int64_t count)
{
    return (wide_any){count > 0 ? x[0] : 0, count > 1 ? x[1] : 0};
}

static inline void added_any(wide_any sums[4][4], int rows, double *total)
{
    for (int i = 0; i < rows; i++) {
        wide_any low = sums[i][0] + sums[i][2], high = sums[i][1] + sums[i][3];
        total[i] = (low[0] + low[1]) + (high[0] + high[1]);
    }
}

#define TARGET
#define NAME(of) of##_any
#define wide wide_any
#define LANES 2
#define EIGHTH 4
#define TILE 4
#define COLUMNS 12
#define EACH_COLUMNS                                                                                                   \
    OF_COLUMNS(0) OF_COLUMNS(1) OF_COLUMNS(2) OF_COLUMNS(3) OF_COLUMNS(4) OF_COLUMNS(5) OF_COLUMNS(6) OF_COLUMNS(7)    \
    OF_COLUMNS(8) OF_COLUMNS(9) OF_COLUMNS(10) OF_COLUMNS(11)
#include "rows.c"

#ifdef __x86_64__
#include <immintrin.h>

#define FIRST_SET __attribute__((target("avx2,fma")))
#define SECOND_SET __attribute__((target("avx512f,avx2,fma")))

FIRST_SET static inline __m256d fused_avx2(__m256d a, __m256d b, __m256d c)
{
    return _mm256_fmadd_pd(a, b, c);
}

FIRST_SET static inline __m256d all_avx2(double number)
{
    return _mm256_set1_pd(number);
}

FIRST_SET static inline __m256d first_avx2(const double *x, int64_t count)
{
    static const int64_t kept[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
    count = count < 0 ? 0 : count > 4 ? 4 : count;
    return _mm256_maskload_pd(x, _mm256_loadu_si256((const __m256i *)(kept + 4 - count)));
}

FIRST_SET static inline void added_fours(__m256d p, __m256d q, __m256d r, __m256d s, int rows, double *total)
{
    __m256d two = _mm256_hadd_pd(p, q), others = _mm256_hadd_pd(r, s);
    __m256d sum = _mm256_add_pd(_mm256_permute2f128_pd(two, others, 0x20), _mm256_permute2f128_pd(two, others, 0x31));
    if (rows == 4)
        _mm256_storeu_pd(total, sum);
    else
        *total = _mm256_cvtsd_f64(sum);
}

FIRST_SET static inline void added_avx2(doubles sums[4][2], int rows, double *total)
{
    added_fours(sums[0][0] + sums[0][1], sums[1][0] + sums[1][1], sums[2][0] + sums[2][1], sums[3][0] + sums[3][1], rows,
                total);
}

SECOND_SET static inline __m512d fused_avx512(__m512d a, __m512d b, __m512d c)
{
    return _mm512_fmadd_pd(a, b, c);
}

SECOND_SET static inline __m512d all_avx512(double number)
{
    return _mm512_set1_pd(number);
}

SECOND_SET static inline __m512d first_avx512(const double *x, int64_t count)
{
    return _mm512_maskz_loadu_pd((__mmask8)((1u << (count & 7)) - 1), x);
}

SECOND_SET static inline __m256d halves(__m512d sums)
{
    return _mm256_add_pd(_mm512_castpd512_pd256(sums), _mm512_extractf64x4_pd(sums, 1));
}

SECOND_SET static inline void added_avx512(eights sums[4][1], int rows, double *total)
{
    added_fours(halves(sums[0][0]), halves(sums[1][0]), halves(sums[2][0]), halves(sums[3][0]), rows, total);
}

#undef TARGET
#undef NAME
#undef wide
#undef LANES
#undef EIGHTH
#define TARGET FIRST_SET
#define NAME(of) of##_avx2
#define wide doubles
#define LANES 4
#define EIGHTH 2
#include "rows.c"
#undef TARGET
#undef NAME
#undef wide
#undef LANES
#undef EIGHTH
#undef TILE
#define TARGET SECOND_SET
#define NAME(of) of##_avx512
#define wide eights
#define LANES 8
#define EIGHTH 1
#define TILE 8
#include "rows.c"
#define HAS_FIRST (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define HAS_SECOND (HAS_FIRST && __builtin_cpu_supports("avx512f"))
#define CHOOSE(of) (HAS_SECOND ? of##_avx512 : HAS_FIRST ? of##_avx2 : of##_any)
#define FUSES HAS_FIRST
#else
#define CHOOSE(of) of##_any
#ifdef __FP_FAST_FMA
#define FUSES 1
#else
#define FUSES 0
#endif
#endif

/* Say whether this processor multiplies and adds in one instruction. Where it has none, the C library does the same, but
 * takes some twenty times as long, and its branches ask for numbers: callers go without kernels there.
 *
 * Returns 0 or 1.
 */
int64_t farthing_fuses(void)
{
    return FUSES;
}

/* Margins x.theta of rows that stand one after the other, at some points.
 *
 * x:      rows * width.
 * theta:  points * width.
 * margin: points * rows; written.
 *
 * Returns 0.
 */
int64_t farthing_margins(const double *x, int64_t rows, int64_t width, int64_t points, const double *theta, double *margin)
{
    CHOOSE(margins)(x, rows, width, points, theta, margin);
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
        CHOOSE(margins)(x + rows * width, following, width, 1, theta, margin);
    return 0;
}

/* Add rows times the changes of their numbers between two points to a sum, and make the margins of the rows that follow.
 *
 * A number is as in `farthing_sum`, clipped to the inverse of the row's norm times `clip` at either point; the change is
 * the second less the first, clipped to the inverse times `bound`.
 *
 * score:   2 * rows; written over.
 * margin:  2 * rows, and then written over by 2 * following.
 * inverse: rows; zero for excluded rows.
 * clip:    infinite: none at either point.
 * theta:   2 * width; not read where nothing follows.
 *
 * Returns 0.
 */
int64_t farthing_difference(const double *x, int64_t rows, int64_t width, double *score, double *margin,
                            const double *weights, const double *inverse, const uint8_t *included, double clip,
                            double bound, double *sums, const double *theta, int64_t following)
{
    CHOOSE(changes)(margin, weights, inverse, included, clip, bound, rows, score);
    CHOOSE(add_rows)(x, rows, width, score, sums, following);
    if (following)
        CHOOSE(margins)(x + rows * width, following, width, 2, theta, margin);
    return 0;
}

/* Add rows' outer products with themselves, times their numbers, to a sum, what is on and above the diagonal, and make
 * the margins of the rows that follow.
 *
 * A number is as in `farthing_sum`, or that squared, clipped to `bound` times the inverse of the row's norm, twice.
 *
 * An entry's products (numbers[i] * x[i][j]) * x[i][k] are added up one row after the other, fused.
 *
 * x:       rows * width.
 * stride:  width, rounded up to a multiple of 8.
 * score:   rows; written over.
 * margin:  rows, and then written over by those that follow; or NULL: the scores are the numbers, weights, inverse and
 *          theta are not read, and what follows is brought to the cache alone.
 * inverse: rows; zero for excluded rows.
 * squared: 0 or 1.
 * room:    64 * stride, zeros before the first call, as what stands behind a row's width stays; written over.
 * sums:    stride * stride; added to. Below the diagonal some entries are, and others not.
 * following: how many rows stand behind these and are read next: memory brings them meanwhile.
 *
 * Returns 0.
 */
int64_t farthing_outer(const double *x, int64_t rows, int64_t width, int64_t stride, double *score, double *margin,
                       const double *weights, const double *inverse, const uint8_t *included, double bound,
                       int64_t squared, double *room, double *sums, const double *theta, int64_t following)
{
    if (margin)
        CHOOSE(factors)(margin, weights, inverse, included, bound, squared, rows, score);
    CHOOSE(outer)(x, rows, width, stride, score, room, sums, following);
    if (margin && following)
        CHOOSE(margins)(x + rows * width, following, width, 1, theta, margin);
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
 * it is rounded to single precision. Records that are left out are zeros, and nothing else asks which they are: so is an
 * excluded row, and the two cannot be distinguished. A part's sum is multiplied by `scale` and truncated.
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
