// See subject.h.

#include "server/session/subject.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/session/cgroup.h"

_Static_assert(SUBJECT_PATH_MAX >= CGROUP_MAX, "a control group fits");

/* Removes the kernel's mark of a file that an upgrade has replaced. */
static void cut_deleted(char *path)
{
	static const char mark[] = " (deleted)";
	size_t length = strlen(path), bytes = sizeof(mark) - 1;

	if (length > bytes && !strcmp(path + length - bytes, mark))
		path[length - bytes] = '\0';
}

void subject_read(uid_t uid, pid_t pid, struct subject *ret_subject)
{
	char path[32];
	ssize_t length;

	*ret_subject = (struct subject){.uid = uid};
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	length = readlink(path, ret_subject->executable, SUBJECT_PATH_MAX);
	/* A path that does not fit is unknown: a truncated path could match where the whole does
	 * not. */
	if (length < 0 || length >= (ssize_t)SUBJECT_PATH_MAX)
		length = 0;
	ret_subject->executable[length] = '\0';
	cut_deleted(ret_subject->executable);
	if (!cgroup_of(pid, ret_subject->cgroup))
		*ret_subject->cgroup = '\0';
}
