/* Draws from a narrow law's table, added up over the terms of a wide one, and what is told of a noised sum.
 *
 * Twins: `NarrowSums` and `CumulativeTable.settled` (core/mechanisms/cumulative.py), `tell_noised`
 * (core/mechanisms/lattice.py). The same words give the same integers. Nothing outside of the lengths given is touched.
 */

#include <stdint.h>

#define UNDECIDED 0x8000u /* guide's numbers from here on are those of undecided cells */
#define MOST_KEPT 4       /* terms whose multipliers stand in registers */

/* `terms` is a constant wherever it is at most MOST_KEPT, so that the inner loops are written out. */
static inline __attribute__((always_inline)) void decide(const uint16_t *leading, int64_t count, int64_t terms,
                                                         const uint16_t *guide, const int64_t *multipliers,
                                                         int64_t offset, int64_t *sums, uint32_t *pending,
                                                         int64_t *pended)
{
    int64_t kept[MOST_KEPT];
    for (int64_t term = 0; term < terms; term++) {
        pended[term] = 0;
        if (terms <= MOST_KEPT)
            kept[term] = multipliers[term];
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t sum = offset;
        uint32_t any = 0;
        for (int64_t term = 0; term < terms; term++) {
            uint32_t reached = guide[leading[term * count + i]];
            any |= reached;
            sum += (terms <= MOST_KEPT ? kept[term] : multipliers[term]) * reached;
        }
        sums[i] = sum;
        if (__builtin_expect(any >= UNDECIDED, 0))
            for (int64_t term = 0; term < terms; term++) {
                uint32_t reached = guide[leading[term * count + i]];
                if (reached >= UNDECIDED)
                    pending[term * count + pended[term]++] = reached << 16 | (uint32_t)i;
            }
    }
}

/* Add up what the leading 16 bits of each draw decide, and list the draws that they leave undecided.
 *
 * leading:     terms * count, term by term; count is at most 2^16.
 * guide:       2^16; how many table values the draw reaches, or UNDECIDED plus the number of an undecided cell.
 * multipliers: terms, K_0 to K_m.
 * offset:      added to every sum.
 * sums:        count; written: offset + sum_t K_t guide[...], the numbers of undecided cells among them.
 * pending:     room for terms * count; written, count of each term apart: guide's number << 16 | place, by place.
 * pended:      terms; written: how many are listed of each term.
 *
 * |K_t| 2^16 added up over terms, and |offset|, are below 2^62 each (the caller's assertion): no integer overflows.
 * Returns 0.
 */
int64_t farthing_decide(const uint16_t *leading, int64_t count, int64_t terms, const uint16_t *guide,
                        const int64_t *multipliers, int64_t offset, int64_t *sums, uint32_t *pending, int64_t *pended)
{
    switch (terms) {
    case 1:
        decide(leading, count, 1, guide, multipliers, offset, sums, pending, pended);
        break;
    case 2:
        decide(leading, count, 2, guide, multipliers, offset, sums, pending, pended);
        break;
    case 3:
        decide(leading, count, 3, guide, multipliers, offset, sums, pending, pended);
        break;
    case 4:
        decide(leading, count, 4, guide, multipliers, offset, sums, pending, pended);
        break;
    default:
        decide(leading, count, terms, guide, multipliers, offset, sums, pending, pended);
    }
    return 0;
}

/* Decide the draws that `farthing_decide` listed, by 48 more bits each, term by term in the order of the list.
 *
 * words: as many as are listed; the leading 48 bits of each follow the draw's 16.
 * first: by undecided cell; how many of the table's values are below all of its words.
 * high:  size, ascending; the table's values, their leading 64 bits.
 *
 * Returns how many draws tie with a table value; their sums are not right, and 64 more bits must decide.
 */
int64_t farthing_settle(const uint16_t *leading, int64_t count, int64_t terms, const uint64_t *words,
                        const uint16_t *first, const uint64_t *high, int64_t size, const int64_t *multipliers,
                        int64_t *sums, const uint32_t *pending, const int64_t *pended)
{
    int64_t ties = 0;
    for (int64_t term = 0; term < terms; term++) {
        const uint16_t *of_term = leading + term * count;
        const uint32_t *listed = pending + term * count;
        int64_t multiplier = multipliers[term];
        for (int64_t k = 0; k < pended[term]; k++) {
            uint32_t i = listed[k] & 0xffff, cell = listed[k] >> 16;
            uint64_t word = (uint64_t)of_term[i] << 48 | *words++ >> 16;
            int64_t passed = first[cell - UNDECIDED];
            passed += passed < size && high[passed] < word;
            while (__builtin_expect(passed < size && high[passed] < word, 0)) /* a cell mostly has one value */
                passed++;
            ties += passed < size && high[passed] == word;
            sums[i] += multiplier * (passed - cell);
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
