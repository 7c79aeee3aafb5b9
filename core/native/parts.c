/* A network's float sums of parts on their way to integers, and squares of norms.
 *
 * Twin: `write_truncated` (core/queries/sums/network/parts.py): the same IEEE operations, so the same bits.
 * Blocks stay in the first cache from the bound's check to the integers. Squares (`exact_squares` in
 * core/queries/sums/network/terms.py) are added up in an order of their own, as they are there: any will do.
 */

#include <math.h>
#include <stdint.h>

#include "integers.h"
#include "processors.h"

#define BLOCK 1024
#define LANES 16

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
        int32_t within = 1, small = 1;
        for (int64_t i = start; i < end; i++) {
            float size = fabsf(part[i] * by);
            within &= size < (float)LARGEST; /* false for what is not a number */
            small &= size < (float)NARROW;
        }
        if (!within)
            return 0;
        if (small && adding)
            for (int64_t i = start; i < end; i++)
                total[i] = (int64_t)((uint64_t)total[i] + whole(part[i] * by));
        else if (small)
            for (int64_t i = start; i < end; i++)
                total[i] = (int64_t)whole(part[i] * by);
        else
            for (int64_t i = start; i < end; i++)
                total[i] = (int64_t)((adding ? (uint64_t)total[i] : 0) + (uint64_t)(int64_t)(part[i] * by));
    }
    return 1;
}

/* Add up the squares of each row's numbers in double precision, where a square of a float is exact: lane by lane, in an
 * order that the width decides.
 *
 * rows:    count * width floats.
 * squares: count; written.
 *
 * Returns 0.
 */
FOR_EACH_PROCESSOR
int64_t farthing_squares(const float *rows, int64_t count, int64_t width, double *squares)
{
    for (int64_t i = 0; i < count; i++, rows += width) {
        double lanes[LANES] = {0}, total = 0.0;
        int64_t j = 0;
        for (; j + LANES <= width; j += LANES)
            for (int64_t lane = 0; lane < LANES; lane++)
                lanes[lane] += (double)rows[j + lane] * (double)rows[j + lane];
        for (; j < width; j++)
            lanes[0] += (double)rows[j] * (double)rows[j];
        for (int64_t lane = 0; lane < LANES; lane++)
            total += lanes[lane];
        squares[i] = total;
    }
    return 0;
}
