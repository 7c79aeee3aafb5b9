/* Which sources this library was built from: `core.native.library` looks for it in the file. */

#ifndef FARTHING_MARK
#error "compile with `python -m core.native.build`"
#endif

const char farthing_mark[] = FARTHING_MARK;
