/* What is told of a noised sum.
 *
 * Twins: `tell_noised` (core/mechanisms/telling.py), and for sums whose last part is floats `write_truncated`
 * (core/queries/sums/network/parts.py) before it: the same integers exactly, and the same float operations on them.
 */

#include <math.h>
#include <stdint.h>

#include "integers.h"
#include "processors.h"

#define BLOCK 1024
#define WITHIN ((uint64_t)NARROW)

/* Round a block of sums of parts to the grid, ties up, and add its noise. Says whether all of it is within 2^51. */
static inline __attribute__((always_inline)) int noise_block(const int64_t *sums, const int64_t *noise, int64_t size,
                                                             int64_t bits, uint64_t *noised)
{
    const uint64_t sign = (uint64_t)1 << 63, half = (uint64_t)1 << (bits - 1);
    uint64_t any = 0;
    for (int64_t i = 0; i < size; i++) { /* shifted as what is not negative, and put back */
        uint64_t rounded = (((uint64_t)sums[i] + half + sign) >> bits) - (sign >> bits);
        noised[i] = rounded + (uint64_t)noise[i];
        any |= noised[i] + WITHIN;
    }
    return any < 2 * WITHIN;
}

/* Scale a block of integers, in single precision at last. */
static inline __attribute__((always_inline)) void scale_block(const uint64_t *noised, int64_t size, int within,
                                                              double scale, float *told)
{
    if (within)
        for (int64_t i = 0; i < size; i++)
            told[i] = (float)(narrow(noised[i]) * scale);
    else
        for (int64_t i = 0; i < size; i++)
            told[i] = (float)((double)(int64_t)noised[i] * scale);
}

/* Round a sum of parts to the grid, ties up, add its noise, and scale it: told = (((sum + 2^(bits-1)) >> bits) + noise)
 * * scale, as a double, or that rounded to a float where `single` is not 0. `told` may begin where `sums` do, in their
 * memory: nothing is written behind what was read. Sums wrap around, as NumPy's do. Returns 0.
 */
FOR_EACH_PROCESSOR
int64_t farthing_tell(const int64_t *sums, const int64_t *noise, int64_t count, int64_t bits, double scale, void *told,
                      int64_t single)
{
    uint64_t noised[BLOCK];
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        int within = noise_block(sums + start, noise + start, size, bits, noised);
        if (single) {
            scale_block(noised, size, within, scale, (float *)told + start);
            continue;
        }
        double *at = (double *)told + start;
        if (within)
            for (int64_t i = 0; i < size; i++)
                at[i] = narrow(noised[i]) * scale;
        else
            for (int64_t i = 0; i < size; i++)
                at[i] = (double)(int64_t)noised[i] * scale;
    }
    return 0;
}

/* Do the same, in single precision, of a sum whose last part is floats: it is truncated toward zero to integers first, and
 * what is told takes its place.
 *
 * part:    count floats; overwritten.
 * inverse: of a power of two, the part step.
 * sums:    count, of the parts before; or no address where there are none.
 *
 * Where numbers are narrow and there is no other part, doubles hold each one on the way exactly: of an integer t below 2^51
 * that was a float, so of 24 bits, t / 2^bits + 1/2 has its bits between 2^50 and 2^-1, or within 24 of its first, or of 2^-1.
 *
 * Returns 1, or 0 where a number of the part is none or reaches LARGEST steps: then nothing may be told.
 */
FOR_EACH_PROCESSOR
int64_t farthing_tell_open(float *part, double inverse, const int64_t *sums, const int64_t *noise, int64_t count,
                           int64_t bits, double scale)
{
    const double coarse = 1.0 / (double)((uint64_t)1 << bits);
    const float by = (float)inverse;
    int64_t total[BLOCK];
    uint64_t noised[BLOCK];
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        float *at = part + start;
        const int64_t *drawn = noise + start;
        int32_t within = 1, small = 1;
        uint64_t any = 0;
        for (int64_t i = 0; i < size; i++) {
            float length = fabsf(at[i] * by);
            within &= length < (float)LARGEST; /* false for what is not a number */
            small &= length < (float)NARROW;
            any |= (uint64_t)drawn[i] + WITHIN / 2;
        }
        if (!within)
            return 0;
        if (small && !sums && any < WITHIN) {
            for (int64_t i = 0; i < size; i++) {
                double rounded = floor(trunc((double)(at[i] * by)) * coarse + 0.5);
                at[i] = (float)((rounded + narrow((uint64_t)drawn[i])) * scale);
            }
            continue;
        }
        for (int64_t i = 0; i < size; i++)
            total[i] = (int64_t)(small ? whole(at[i] * by) : (uint64_t)(int64_t)(at[i] * by));
        if (sums)
            for (int64_t i = 0; i < size; i++)
                total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)sums[start + i]);
        scale_block(noised, size, noise_block(total, drawn, size, bits, noised), scale, at);
    }
    return 1;
}
