// As libpthread.c, in place of glibc's libdl.so.2, whose functions moved with glibc 2.34.

#include "client/old_glibc.h"

FUNCTION(dlerror)
FUNCTION(dlopen)
FUNCTION(dlsym)
