// See script.h.

#include "tests/lib/script.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void script_make(char *path, const char *script)
{
	int fd = mkstemp(path);
	FILE *file;

	ck_assert_int_ge(fd, 0);
	file = fdopen(fd, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "#!/bin/sh\n%s\n", script);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, 0700), 0);
}
