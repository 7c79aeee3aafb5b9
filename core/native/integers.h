/* Integers and floats of one another, many at a time: no processor at hand converts several 64-bit integers at once. */

#include <stdint.h>
#include <string.h>

#define NARROW 0x1p51 /* below it in size, 32 bits hold what `whole` makes, and doubles all integers and their halves */
#define LARGEST 0x1p62 /* `LARGEST_SUM`: no part reaches so many steps, and a conversion would be undefined */

/* v, |v| < 2^51, without its fraction, as two integers of 32 bits: 2^20 times `high` of them is what stands above, and
 * taking that away from a float of 24 bits is exact. Processors convert eight such integers at a time.
 */
static inline uint64_t whole(float v)
{
    int32_t high = (int32_t)(v * 0x1p-20f);
    int32_t low = (int32_t)(v - (float)high * 0x1p20f);
    return ((uint64_t)(int64_t)high << 20) + (uint64_t)(int64_t)low;
}

/* An integer within 2^51 as a double: it stands in the last bits of its sum with 3 * 2^51, which is taken away exactly. */
static inline double narrow(uint64_t integer)
{
    uint64_t shifted = integer + 0x4338000000000000;
    double value;
    memcpy(&value, &shifted, sizeof value);
    return value - 0x1.8p52;
}
