// Reads /proc/self/fd. Test processes only.

#include "tests/lib/fds.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls `each` with every open descriptor but the directory's own. */
static void walk(void (*each)(int fd, void *data), void *data)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	if (!dir) {
		perror("/proc/self/fd");
		abort();
	}
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
			each(atoi(entry->d_name), data);
	closedir(dir);
}

static void count_one(int fd, void *data)
{
	(void)fd;
	++*(unsigned *)data;
}

unsigned fds_count(void)
{
	unsigned count = 0;

	walk(count_one, &count);
	return count;
}

struct text {
	char *at;
	size_t room;
};

static void describe_one(int fd, void *data)
{
	struct text *text = data;
	char link[32], target[128];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, target, sizeof(target) - 1);
	target[n < 0 ? 0 : n] = '\0';
	int used = snprintf(text->at, text->room, "%d → %s, ", fd, target);
	size_t step = (size_t)used < text->room ? (size_t)used : text->room - 1;
	text->at += step;
	text->room -= step;
}

void fds_describe(char *text, size_t size)
{
	struct text rest = {.at = text, .room = size};

	text[0] = '\0';
	walk(describe_one, &rest);
}
