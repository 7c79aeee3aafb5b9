/* Which units a Poisson sample has, as a list of a public length.
 *
 * Twin: `poisson_list` (core/mechanisms/sampling.py). The same words give the same list. What is drawn decides where
 * numbers are written, within lengths that are public, and no branch and no loop. No function here reads or writes
 * outside of the lengths it is given.
 */

#include <stdint.h>

#define TOGETHER 8 /* units that share a draw */

/* List the groups that may have units in the sample, and what their leading bits decide.
 *
 * leading: count; the leading 16 bits of each group's draw.
 * least:   no unit of a group whose leading bits are below it is in the sample.
 * guide:   2^16; the group's byte, or -1 where leading bits do not decide.
 * length:  what the list is padded to, with places from `count` on, which have the last group's leading bits.
 * places:  length + 1; written.
 * drawn:   length; written: a byte each.
 * pending: length + 1; written: where in the list those are that are not decided.
 * pended:  1; written: how many they are.
 *
 * Returns how many groups there are to list; nothing but `places` is written where these are more than `length`.
 */
int64_t farthing_groups(const uint16_t *leading, int64_t count, int64_t least, const int16_t *guide, int64_t length,
                        int64_t *places, uint8_t *drawn, int64_t *pending, int64_t *pended)
{
    int64_t found = 0, open = 0;
    for (int64_t i = 0; i < count; i++) {
        places[found < length ? found : length] = i;
        found += leading[i] >= least;
    }
    if (found > length)
        return found;
    for (int64_t i = found; i < length; i++)
        places[i] = count + i - found;
    for (int64_t i = 0; i < length; i++) {
        int64_t at = places[i] < count ? places[i] : count - 1;
        int16_t byte = guide[leading[at]];
        drawn[i] = (uint8_t)byte;
        pending[open] = i;
        open += byte < 0;
    }
    *pended = open;
    return found;
}

/* Decide the groups that are pending, by 48 more bits each.
 *
 * words: pended; their last 48 bits follow the group's 16.
 * high:  255, ascending; the leading 64 bits of the law's cumulative numerators.
 *
 * Returns how many draws tie with one of them; all bits must decide these.
 */
int64_t farthing_settle_groups(const uint16_t *leading, int64_t count, const uint64_t *words, const uint64_t *high,
                               const int64_t *places, uint8_t *drawn, const int64_t *pending, int64_t pended)
{
    int64_t ties = 0;
    for (int64_t k = 0; k < pended; k++) {
        int64_t place = places[pending[k]], at = place < count ? place : count - 1;
        uint64_t word = (uint64_t)leading[at] << 48 | (words[k] & 0xffffffffffffu);
        int64_t reached = 0; /* how many of the 255 are below the word */
        for (int64_t half = 128; half; half /= 2)
            reached += high[reached + half - 1] < word ? half : 0;
        ties += reached < 255 && high[reached] == word;
        drawn[pending[k]] = (uint8_t)reached;
    }
    return ties;
}

/* List the units of groups.
 *
 * places:   groups; in ascending order, those from `count` on being none.
 * drawn:    groups; a byte each, its highest bit the group's first unit; written: zero for those that are none, and in
 *           bits that are no units.
 * units:    how many units there are; the last group may have fewer than eight.
 * spread:   length; what the list is padded with.
 * rows:     length + 1; written.
 * included: length; written: 1 for units of the sample, 0 for padding.
 *
 * Returns how many units the sample has; where these are more than `length`, the first ones are listed.
 */
int64_t farthing_units(const int64_t *places, uint8_t *drawn, int64_t groups, int64_t count, int64_t units,
                       const int64_t *spread, int64_t length, int64_t *rows, uint8_t *included)
{
    int64_t found = 0, spare = count * TOGETHER - units;
    for (int64_t i = 0; i < groups; i++) {
        int64_t kept = -(int64_t)(places[i] < count), last = -(int64_t)(places[i] == count - 1);
        uint8_t byte = drawn[i] & (uint8_t)kept & ((uint8_t)(0xff << spare) | (uint8_t)~last);
        drawn[i] = byte;
        for (int64_t bit = 0; bit < TOGETHER; bit++) {
            rows[found < length ? found : length] = places[i] * TOGETHER + bit;
            found += byte >> (TOGETHER - 1 - bit) & 1;
        }
    }
    for (int64_t i = 0; i < length; i++) {
        rows[i] = i < found ? rows[i] : spread[i];
        included[i] = i < found;
    }
    return found;
}

/* Put a list in an order that is uniformly random where the words are: Fisher and Yates, from the last place down.
 *
 * A word stands for one of m places. Of those words whose product with m has a lower half of 2^64 mod m at least, each
 * place has equally many (Lemire 2019).
 *
 * words:    length - 1.
 * rows:     length; reordered.
 * included: length; reordered alike.
 *
 * Returns 0; 1 where a word is another one, once in 2^63 / length^2 lists: then the order is not yet random, and new words
 * make it so, whatever it is.
 */
int64_t farthing_shuffle(const uint64_t *words, int64_t length, int64_t *rows, uint8_t *included)
{
    uint64_t others = 0;
    for (int64_t last = length - 1; last > 0; last--) {
        uint64_t places = (uint64_t)last + 1;
        unsigned __int128 product = (unsigned __int128)words[last - 1] * places;
        int64_t at = (int64_t)(product >> 64), row = rows[last];
        uint8_t counts = included[last];
        others |= (uint64_t)product < places && (uint64_t)product < -places % places;
        rows[last] = rows[at];
        rows[at] = row;
        included[last] = included[at];
        included[at] = counts;
    }
    return (int64_t)others;
}
