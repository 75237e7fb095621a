// See folder.h.

#include "tests/lib/folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/shim_uuid.h"

static char folder[64];

void folder_shell(const char *line)
{
	ck_assert_msg(system(line) == 0, "%s", line);
}

char *folder_enter(void)
{
	strcpy(folder, "/tmp/frmps-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	return folder;
}

void folder_leave(void)
{
	char line[128];

	snprintf(line, sizeof(line), "cd / && rm -rf %s", folder);
	folder_shell(line);
}

void folder_put_shim(const char *path, const char *before)
{
	static const unsigned char id[] = FRMPS_SHIM_UUID_BYTES;
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	fputs(before, file);
	fwrite(id, 1, sizeof(id), file);
	fclose(file);
}
