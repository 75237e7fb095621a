// See cgroup.h. A line is NUMBER:CONTROLLERS:PATH; version 2 has number 0 and no controllers.

#include "server/session/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Twelve hierarchies of version 1 fit. */
#define FILE_MAX 4096u

bool cgroup_parse(char *lines, char *text)
{
	const char *first = NULL;
	char *line, *rest = lines, *path;

	while ((line = strsep(&rest, "\n"))) {
		bool unified = strncmp(line, "0::", 3) == 0;

		path = strchr(line, ':');
		path = path ? strchr(path + 1, ':') : NULL;
		if (!path)
			continue;
		if (unified || !first)
			first = path + 1;
		if (unified)
			break;
	}
	/* A truncated path could match a section that the whole path does not match, and the other
	 * way round. */
	return first && snprintf(text, CGROUP_MAX, "%s", first) < (int)CGROUP_MAX;
}

bool cgroup_of(pid_t pid, char *text)
{
	char path[32], lines[FILE_MAX];
	ssize_t bytes = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		bytes = read(fd, lines, sizeof(lines));
		close(fd);
	}
	/* The relevant line comes last: a file that does not fit may lack that line. */
	if (bytes <= 0 || bytes == sizeof(lines))
		return false;
	lines[bytes] = '\0';
	return cgroup_parse(lines, text);
}
