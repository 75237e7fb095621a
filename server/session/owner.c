// See owner.h. A line of /etc/subuid is NAME:FIRST:COUNT, where NAME may be a number. Names are
// looked up in the file alone: a directory server could keep the daemon waiting.

#include "server/session/owner.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Lines beyond these are not read. */
#define RANGES_MAX 4096u

struct range {
	uint64_t first, count;
	char name[64];
	uid_t owner;
};

static struct {
	const char *subuid, *passwd;
	struct stat status; /* of subuid, at the time of reading */
	bool is_read;
	struct range *ranges;
	size_t count;
} table = {.subuid = "/etc/subuid", .passwd = "/etc/passwd"};

/* Return: false if the line is no range */
static bool read_range(const char *line, struct range *ret)
{
	unsigned long long first, count;
	char *end;

	if (sscanf(line, "%63[^:]:%llu:%llu", ret->name, &first, &count) != 3 || !count)
		return false;
	ret->first = first;
	ret->count = count;
	ret->owner = (uid_t)strtoul(ret->name, &end, 10);
	if (*end)
		ret->owner = (uid_t)first;
	return true;
}

static void read_ranges(void)
{
	FILE *file = fopen(table.subuid, "re");
	char line[256];

	table.count = 0;
	if (!file)
		return;
	if (!table.ranges)
		table.ranges = calloc(RANGES_MAX, sizeof(*table.ranges));
	while (table.ranges && table.count < RANGES_MAX && fgets(line, sizeof(line), file))
		table.count += read_range(line, &table.ranges[table.count]);
	fclose(file);
}

static void find_names(void)
{
	FILE *file = table.count ? fopen(table.passwd, "re") : NULL;
	const struct passwd *user;

	while (file && (user = fgetpwent(file)))
		for (size_t i = 0; i < table.count; i++)
			if (!strcmp(table.ranges[i].name, user->pw_name))
				table.ranges[i].owner = user->pw_uid;
	if (file)
		fclose(file);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void owner_refresh(void)
{
	struct stat status = {0};

	if (stat(table.subuid, &status) < 0)
		memset(&status, 0, sizeof(status));
	if (table.is_read && is_same(&status, &table.status))
		return;
	table.status = status;
	table.is_read = true;
	read_ranges();
	find_names();
}

uid_t owner_of(uid_t uid)
{
	if (!table.is_read)
		owner_refresh();
	for (size_t i = 0; i < table.count; i++)
		if (uid >= table.ranges[i].first && uid - table.ranges[i].first < table.ranges[i].count)
			return table.ranges[i].owner;
	return uid;
}

void owner_read_from(const char *subuid, const char *passwd)
{
	table.subuid = subuid ? subuid : "/etc/subuid";
	table.passwd = passwd ? passwd : "/etc/passwd";
	table.is_read = false;
}
