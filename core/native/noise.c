/* Draws from a narrow law's table, added up over the terms of a wide one, and what is told of a noised sum.
 *
 * Twins: `CumulativeTable.draw`, `DiscreteGaussian.draw` (core/mechanisms/gaussian.py) and `noised` (core/mechanisms/
 * told.py). The same words give the same integers. No function here reads or writes outside of the lengths it is given.
 */

#include <stddef.h>
#include <stdint.h>

#define BLOCK 1024 /* coordinates whose integers stay in the first cache while all terms are added */

/* Add up what the leading 16 bits of each draw decide, and list the draws that they leave undecided.
 *
 * leading:     terms * count, term by term.
 * guide:       2^16; how many table values the draw reaches, or from `decided` on the number of an undecided cell.
 * multipliers: terms, K_0 to K_m.
 * offset:      added to every sum.
 * sums:        count; written: offset + sum_t K_t guide[...], the numbers of undecided cells among them.
 * pending:     room for terms * count; written: cell << 32 | place, term by term, by ascending place.
 * pended:      terms; written: how many are listed of each term.
 *
 * |K_t| 2^16 terms + |offset| is below 2^63 (the caller's assertion), so no integer overflows. Returns 0.
 */
int64_t farthing_decide(const uint16_t *leading, int64_t count, int64_t terms, const uint16_t *guide, int64_t decided,
                        const int64_t *multipliers, int64_t offset, int64_t *sums, uint64_t *pending, int64_t *pended)
{
    for (int64_t term = 0; term < terms; term++)
        pended[term] = 0;
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t end = start + BLOCK < count ? start + BLOCK : count;
        for (int64_t i = start; i < end; i++)
            sums[i] = offset;
        for (int64_t term = 0; term < terms; term++) {
            const uint16_t *of_term = leading + term * count;
            uint64_t *listed = pending + term * count;
            int64_t multiplier = multipliers[term], many = pended[term];
            for (int64_t i = start; i < end; i++) {
                int64_t reached = guide[of_term[i]];
                sums[i] += multiplier * reached;
                listed[many] = (uint64_t)reached << 32 | (uint64_t)i;
                many += reached >= decided;
            }
            pended[term] = many;
        }
    }
    return 0;
}

/* Decide the draws that `farthing_decide` listed, by 48 more bits each, in the order of the list.
 *
 * words: as many as are listed; the leading 48 bits of each follow the draw's 16.
 * first: by cell; how many of the table's values are below all of its words.
 * high:  size, ascending; the table's values, their leading 64 bits.
 *
 * Returns how many draws tie with a table value; their sums are not right, and 64 more bits must decide.
 */
int64_t farthing_settle(const uint16_t *leading, int64_t count, int64_t terms, const uint64_t *words,
                        const uint16_t *first, const uint64_t *high, int64_t size, int64_t decided,
                        const int64_t *multipliers, int64_t *sums, const uint64_t *pending, const int64_t *pended)
{
    int64_t ties = 0;
    for (int64_t term = 0; term < terms; term++) {
        const uint64_t *listed = pending + term * count;
        for (int64_t k = 0; k < pended[term]; k++) {
            int64_t i = (int64_t)(listed[k] & 0xffffffff), cell = (int64_t)(listed[k] >> 32);
            uint64_t word = (uint64_t)leading[term * count + i] << 48 | *words++ >> 16;
            int64_t passed = first[cell - decided];
            while (passed < size && high[passed] < word)
                passed++;
            ties += passed < size && high[passed] == word;
            sums[i] += multipliers[term] * (passed - cell);
        }
    }
    return ties;
}

/* Round a sum of parts to the grid, ties up, add its noise, and scale it: told = (((sum + 2^(bits-1)) >> bits) + noise)
 * * scale, as a float. `told` may be the very memory of `sums`. Sums wrap around, as NumPy's do. Returns 0.
 */
int64_t farthing_tell(const int64_t *sums, const int64_t *noise, int64_t count, int64_t bits, double scale, double *told)
{
    uint64_t half = (uint64_t)1 << (bits - 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t rounded = (int64_t)((uint64_t)sums[i] + half) >> bits;
        told[i] = (double)(int64_t)((uint64_t)rounded + (uint64_t)noise[i]) * scale;
    }
    return 0;
}
