// One call that fails: the n-th of a kind in processes of a role, whatever the kernel or the C
// library would say. Or the process is killed there. Programs that are linked with failing.c have
// malloc() and its like, mmap(), memfd_create(), sendmsg(), fork(), clone(), pthread_create() and
// what opens descriptors of this file, which count their calls in a page that FRMPS_FAILING names.
// A test arms the page from outside. Any thread.

#ifndef FRMPS_TESTS_LIB_FAILING_H
#define FRMPS_TESTS_LIB_FAILING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum failing_call {
	FAILING_MALLOC,
	FAILING_MMAP,
	FAILING_MEMFD,
	FAILING_SEND,
	FAILING_CLONE,
	FAILING_THREAD,
	FAILING_FILE, /* whatever opens a descriptor, but memfd_create() */
	/* The process is killed in the place of the call. */
	FAILING_UNSENT,	 /* sendmsg() */
	FAILING_UNTAKEN, /* recv() that takes a message off its socket */
	FAILING_CALLS
};

/* Processes. A child of frmps-server without a role of its own is a daemon. */
enum failing_role {
	FAILING_NOBODY,
	FAILING_HOLDER,
	FAILING_DAEMON,
	FAILING_KEEPER,
	FAILING_EXECUTOR,
	FAILING_COMPILER,
	FAILING_PROGRAM, /* failing_be_program() */
	FAILING_ROLES
};

struct failing_page {
	_Atomic uint32_t role; /* FAILING_NOBODY: nothing fails */
	_Atomic uint32_t call;
	_Atomic int32_t pid;	   /* of the role's processes only this one; 0: all of them together */
	_Atomic int64_t left;	   /* calls until the one that fails; below 1: it has failed */
	_Atomic int32_t failed_in; /* process; 0: none has failed */
	char where[2048];	   /* the stack of that call, a line for each frame */
	char told[256];		   /* the call of a program that returned an error */
};

/** Makes the page, for this process and all that it starts. Return: NULL with errno set */
struct failing_page *failing_make(const char *path);
/** This process is a program from now on. */
void failing_be_program(void);

void failing_arm(
	struct failing_page *page, enum failing_role role, pid_t pid, enum failing_call call, int64_t number);
/** Return: whether a call has failed */
bool failing_disarm(struct failing_page *page);

const char *failing_call_name(enum failing_call call);
const char *failing_role_name(enum failing_role role);

#endif
