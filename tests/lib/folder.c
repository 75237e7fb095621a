// See folder.h.

#include "tests/lib/folder.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "protocol/shim_uuid.h"

#define MEMORY	   "/dev/shm"
#define ROOM_BYTES (UINT64_C(1) << 30)

static char folder[64];

void folder_shell(const char *line)
{
	ck_assert_msg(system(line) == 0, "%s", line);
}

static char *enter(const char *place)
{
	snprintf(folder, sizeof(folder), "%s/frmps-test-XXXXXX", place);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	return folder;
}

char *folder_enter(void)
{
	return enter("/tmp");
}

char *folder_enter_in_memory(void)
{
	struct statvfs space;
	bool has_room = !access(MEMORY, W_OK) && !statvfs(MEMORY, &space) &&
			(uint64_t)space.f_bavail * space.f_frsize >= ROOM_BYTES;

	return enter(has_room ? MEMORY : "/tmp");
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
