// See identity.h. No state.

#include "server/identity.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

/* An unknown number is as good as too many. */
static void set_count(struct identity *identity, size_t count)
{
	identity->group_count = count <= IDENTITY_GROUPS_MAX ? (uint32_t)count : IDENTITY_GROUPS_MAX + 1;
}

void identity_of_peer(const struct ucred *credentials, int socket, struct identity *ret_identity)
{
	socklen_t bytes = sizeof(ret_identity->groups);
	int r;

	*ret_identity = (struct identity){.uid = credentials->uid, .gid = credentials->gid};
	r = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, ret_identity->groups, &bytes);
	set_count(ret_identity, r < 0 ? SIZE_MAX : bytes / sizeof(gid_t));
}

void identity_of_self(struct identity *ret_identity)
{
	int count;

	*ret_identity = (struct identity){.uid = geteuid(), .gid = getegid()};
	count = getgroups(IDENTITY_GROUPS_MAX, ret_identity->groups);
	set_count(ret_identity, count < 0 ? SIZE_MAX : (size_t)count);
}

/* The kernel keeps groups in order. */
bool identity_equal(const struct identity *left, const struct identity *right)
{
	return left->uid == right->uid && left->gid == right->gid &&
	       left->group_count == right->group_count && left->group_count <= IDENTITY_GROUPS_MAX &&
	       !memcmp(left->groups, right->groups, left->group_count * sizeof(gid_t));
}

/* What an exec may give: to user 0 it would give all. */
static int empty_bounding_set(void)
{
	int r;

	for (unsigned long cap = 0; (r = prctl(PR_CAPBSET_READ, cap, 0, 0, 0)) >= 0; cap++)
		if (r && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return -1;
	return 0;
}

/* The C library's functions: they act on all threads, the driver's too. */
int identity_become(uid_t uid)
{
	if (setgroups(0, NULL) < 0 ||
		setresgid(IDENTITY_NO_GROUP, IDENTITY_NO_GROUP, IDENTITY_NO_GROUP) < 0 ||
		setresuid(uid, uid, uid) < 0)
		return -errno;
	return 0;
}

/* Not the C library's functions: those act on all threads that it believes this process has. */
int identity_take(const struct identity *identity)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	if (identity->group_count > IDENTITY_GROUPS_MAX)
		return -E2BIG;
	if (empty_bounding_set() < 0 ||
		syscall(SYS_setgroups, (size_t)identity->group_count, identity->groups) < 0 ||
		syscall(SYS_setresgid, identity->gid, identity->gid, identity->gid) < 0 ||
		syscall(SYS_setresuid, identity->uid, identity->uid, identity->uid) < 0 ||
		syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return 0;
}
