// What the shim is linked with in place of glibc's libpthread.so.0; it is never loaded. The
// functions for threads moved into libc.so.6 with glibc 2.32 and 2.34, under new versions, and a
// library that is linked with those does not load where the C library is older. This file has the
// names with the versions that they had before (libpthread.map), so that the shim asks for these:
// an older glibc has them in libpthread.so.0, which NVIDIA's library needs too, and a newer one
// keeps both the file and the versions.
//
// A function that the shim begins to use is added here and in libpthread.map;
// tests/contract/symbols.sh notices.

#define FUNCTION(name)                                                                                       \
	void name(void);                                                                                     \
	void name(void)                                                                                      \
	{                                                                                                    \
	}

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
