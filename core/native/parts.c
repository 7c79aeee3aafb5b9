/* A network's float sums of parts on their way to integers, and its parameters on their way to floats.
 *
 * Twins: `write_truncated` and `moved` (core/problems/neural/parts.py): the same IEEE operations, so the same bits.
 * Blocks stay in the first cache from the bound's check to the integers.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "floats are rounded where they are computed"
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(FARTHING_PLAIN)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default"))) /* chosen when the library is loaded */
#else
#define FOR_EACH_PROCESSOR
#endif

#define BLOCK 1024
#define NARROW 0x1p51  /* below it in size, the steps of `whole` are exact */
#define LARGEST 0x1p62 /* `LARGEST_SUM`: no part reaches so many steps, and a conversion would be undefined */

/* v, |v| < 2^51, without its fraction. a + 2^52 rounds |v| to a whole number, 2^52 is taken away exactly, and what was
 * rounded up is put down by 1; a whole number below 2^52 then stands in the last bits of its sum with 2^52. */
static inline int64_t whole(double v)
{
    double size = fabs(v), rounded = (size + 0x1p52) - 0x1p52;
    int64_t bits, negative;
    rounded -= rounded > size ? 1.0 : 0.0;
    rounded += 0x1p52;
    memcpy(&bits, &rounded, sizeof bits);
    bits -= 0x4330000000000000;
    negative = v < 0 ? -1 : 0;
    return (bits ^ negative) - negative;
}

/* Truncate part[i] * inverse toward zero into total[i], or add it there.
 *
 * part:    count floats.
 * inverse: of a power of two.
 * total:   count; sums wrap around, as NumPy's do.
 *
 * Returns 1, or 0 where a product is not a number or reaches LARGEST: then the total is not to be used.
 */
FOR_EACH_PROCESSOR
int64_t farthing_truncate(const float *part, int64_t count, double inverse, int64_t *total, int64_t adding)
{
    float by = (float)inverse;
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t end = start + BLOCK < count ? start + BLOCK : count;
        int32_t within = 1, narrow = 1;
        for (int64_t i = start; i < end; i++) {
            float size = fabsf(part[i] * by);
            within &= size < (float)LARGEST; /* false for what is not a number */
            narrow &= size < (float)NARROW;
        }
        if (!within)
            return 0;
        if (!adding)
            for (int64_t i = start; i < end; i++)
                total[i] = 0;
        if (narrow)
            for (int64_t i = start; i < end; i++)
                total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)whole(part[i] * by));
        else
            for (int64_t i = start; i < end; i++)
                total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)(int64_t)(part[i] * by));
    }
    return 1;
}

/* Round changes to single precision and add them to the start: moved = (float)change + start. Returns 0. */
FOR_EACH_PROCESSOR
int64_t farthing_move(const float *start, const double *change, int64_t count, float *moved)
{
    for (int64_t i = 0; i < count; i++)
        moved[i] = (float)change[i] + start[i];
    return 0;
}
