// The roles of the daemon's children, and their heritage: a child has one role for life, chosen at
// exec, and struct heritage is the complete list of inherited things. Nothing else is inherited
// (all other descriptors are close-on-exec).

#ifndef FRMPS_SERVER_ROLE_H
#define FRMPS_SERVER_ROLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/place.h"

struct devices;
struct transfers;

enum role { ROLE_KEEPER, ROLE_EXECUTOR, ROLE_COMPILER };

/* Descriptors of a child. 0 is /dev/null; 1 and 2 are the daemon's, or a pipe to the daemon. */
#define HERITAGE_CONTROL_FD 3 /* SOCK_SEQPACKET to the daemon */
#define HERITAGE_WORDS_FD   4 /* executors: memfd with LAST_WORDS_MAX structs last_words */
#define HERITAGE_DUMP_FD                                                                                     \
	5 /* executors: a memfd that nobody reads, for a dump of the driver (worker/exceptions.h) */

/* Queues of the hardware that an executor's context has for the kernels of each priority. If more
 * streams have work, they wait for a queue. At a fault each costs the driver's firmware 1 ms, and 2
 * ms in a context that was made later (backend/cuda/stream.c). Measured on an H200 (driver
 * 580.159.04):
 *
 *   queues   longest pause beside small programs   waits of 48 programs, of 24
 *      32    44 ms                                 366 000 /s, 401 000
 *      16    22 ms, 14 with the first used first   342 000, 400 000
 *       8    14 ms                                 334 000, 399 000 */
#define HERITAGE_QUEUES 16

/* Exit status of an executor that cannot take on its user's identity. */
#define HERITAGE_EXIT_IDENTITY 126

/* The trial's verdict on the service's own handling of exceptions (prove.h). */
enum proof_state {
	PROOF_NONE, /* the backend needs none */
	PROOF_GOOD,
	PROOF_FAILED /* executors leave exceptions to the driver */
};

struct proof {
	enum proof_state state;
	uint32_t ms;   /* that the trial took */
	char why[256]; /* PROOF_FAILED */
};

/* The user of executors. */
enum run_as {
	RUN_AS_SERVICE,
	RUN_AS_USER,	/* opened by the service, which is root; from its first session on as the
			 * session's user, in no group (identity_become()) */
	RUN_AS_PROGRAM, /* started with the program's user and groups (identity_take()): a backend that is
			 * loaded, whose executors may run programs' code */
};

/* Everything a child inherits. Owned by the daemon's main function, constant while children run. */
struct heritage {
	const char *backend;	    /* name */
	const char *backend_option; /* that children are told: the key backend */
	int device;		    /* device number as the child counts */
	int log_level;		    /* enum log_level */
	char **environment;	    /* cleaned: heritage_environment() */
	struct proof proof;
	/* The device allows a context to one process alone (compute mode EXCLUSIVE_PROCESS): there
	 * is one executor at a time. */
	bool exclusive;
	/* Which of the service's devices this is, and of how many; how many of the devices before
	 * are the same GPU, and the UUID of that GPU. */
	unsigned number, count, copy;
	uint8_t uuid[16];
	const struct devices *devices; /* of the service; not for children; NULL: not known */
	/* For each device of the service, by its number: as Device.peers (protocol/control.fbs). */
	uint8_t peers[PLACE_DEVICES];
	struct transfers *transfers; /* of a service with several devices, else NULL; not for children */
	enum run_as run_as;
	char run_as_why[256]; /* RUN_AS_SERVICE, although the service is root: the reason; else "" */
};

const char *role_name(enum role role);

/**
 * The environment for children: no shim in LD_LIBRARY_PATH and LD_PRELOAD (children must open the
 * real driver), the driver's variables that executors rely on, and for the cuda backend
 * CUDA_VISIBLE_DEVICES reduced to the chosen device, which then is number 0.
 * @parent: NULL-terminated list, as environ
 * @shim_directory: directory of our libcuda.so.1; may be NULL
 * @visible: entry for CUDA_VISIBLE_DEVICES; NULL leaves the variable unchanged
 * Return: a list to be freed with heritage_environment_free(), NULL when out of memory.
 */
char **heritage_environment(char *const *parent, const char *shim_directory, const char *visible);
char **heritage_environment_free(char **environment);
/** Removes variables that must not reach the user of a child from a list. The strings stay. Return:
 * the entries that are left */
size_t heritage_leave_for_user(char **environment);

/* Descriptors for a child; -1: none of that kind. */
struct heritage_fds {
	int control;
	int words;  /* executors */
	int dump;   /* executors */
	int output; /* executors: standard output and error (worker/output.h) */
};

/**
 * Places a child's descriptors, and closes all others. Between fork and exec: only calls that are
 * safe there.
 * Return: false with errno set
 */
bool heritage_place(const struct heritage_fds *fds);
/** In the parent. */
void heritage_close(const struct heritage_fds *fds);

/**
 * Entry number `device` of a CUDA_VISIBLE_DEVICES list, or the number itself where there is no
 * list.
 * Return: a string of the caller's, NULL if the list is shorter than that or memory ran out.
 */
char *heritage_visible_device(const char *list, int device);

#endif
