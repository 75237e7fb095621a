// As libpthread.c, in place of glibc's libdl.so.2, whose functions moved with glibc 2.34.

#define FUNCTION(name)                                                                                       \
	void name(void);                                                                                     \
	void name(void)                                                                                      \
	{                                                                                                    \
	}

FUNCTION(dlerror)
FUNCTION(dlopen)
FUNCTION(dlsym)
