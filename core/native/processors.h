/* For functions that are compiled once for each kind of processor, and round as NumPy does. */

#include <float.h>

#if FLT_EVAL_METHOD != 0
#error "floats are rounded where they are computed"
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(FARTHING_PLAIN)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default"))) /* chosen when the library is loaded */
#else
#define FOR_EACH_PROCESSOR
#endif
