// The library is linked with this file in place of glibc's libpthread.so.0; no program ever loads
// it. With glibc 2.32 and 2.34 the thread functions moved into libc.so.6, under new versions, and a
// library linked with those does not load where the C library is older. This file has the names
// with their former versions (old_glibc.map), so that the library needs only these: an older glibc
// has them in libpthread.so.0, which NVIDIA's library needs too, and a newer glibc keeps both the
// file and the versions.
//
// A thread function that the library starts to use must be added here; tests/contract/symbols.sh
// checks this.

#include "client/old_glibc.h"

FUNCTION(pthread_attr_getstack)
FUNCTION(pthread_create)
FUNCTION(pthread_getattr_np)
FUNCTION(pthread_join)
FUNCTION(pthread_key_create)
FUNCTION(pthread_mutex_timedlock)
FUNCTION(pthread_mutex_trylock)
FUNCTION(pthread_once)
FUNCTION(pthread_rwlock_rdlock)
FUNCTION(pthread_rwlock_unlock)
FUNCTION(pthread_rwlock_wrlock)
FUNCTION(pthread_setspecific)
FUNCTION(pthread_sigmask)
