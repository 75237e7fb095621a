// A function of an older glibc that the library is linked with (libpthread.c). Nobody calls it.

#ifndef FRMPS_CLIENT_OLD_GLIBC_H
#define FRMPS_CLIENT_OLD_GLIBC_H

#define FUNCTION(name)                                                                                       \
	void name(void);                                                                                     \
	void name(void)                                                                                      \
	{                                                                                                    \
	}

#endif
