// The programs that system tests run as children: how they are started, talked to and awaited, and
// those that more than one test needs. A child says what it has to say by its exit status and by
// bytes in a pipe.

#ifndef FRMPS_TESTS_SYSTEM_PROGRAM_H
#define FRMPS_TESTS_SYSTEM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/lib/service.h"

/**
 * Unchecked fixtures of suites whose tests also pass against the driver's own library
 * (FRMPS_TEST_NATIVE): one service for all of them, or none.
 */
extern struct service common_service;
void common_service_start(void);
void common_service_stop(void);

/** Runs a function in a child; its return value is the child's exit status. */
pid_t spawn(int (*function)(int), int argument);

/** Waits for a child. Return: its exit status, or 1000 + the signal that killed it. */
int exit_status(pid_t pid);

/* A child that reports progress, one byte each time, and takes orders, one byte each. */
struct child {
	pid_t pid;
	int progress, orders; /* the parent's ends */
};

/** What a child sees of it: `progress` is for writing, `orders` for reading. */
typedef int child_function(int progress, int orders);

struct child child_start(child_function *function);
/** Waits for bytes of progress; fails the test if the child ends before. */
void child_wait(const struct child *child, int bytes);
/** Forgets progress that was made before now. */
void child_drain(const struct child *child);
/** Whether there is progress that was not waited for. */
bool child_progresses(const struct child *child);
/** Whether a child that worked has been stopped: it may report one more round that it did on the
 * device before. Before: child_drain(), and some time */
bool child_stands_still(const struct child *child);
/** Whether the child has not ended. */
bool child_runs(const struct child *child);
void child_order(const struct child *child);
/** Orders the child's next step, and waits until it reports one. */
void see_it_work(const struct child *child);
/** Closes the pipes and waits. Return: as exit_status() */
int child_end(struct child *child);

/** In a child: reports progress. */
void report(int progress);
/** In a child: whether there is an order; waits for one if `wait`. A parent that is gone is one. */
bool ordered(int orders, bool wait);

/** Sends or receives a descriptor over a socket. */
void pass_fd(int socket, int *fd, bool sends);

/** For what has no event to wait for: processor time, threads that end by themselves. */
void pass_time(int ms);

/** One whole program, which works only if the service does: 0 is its good end. */
int one_program(int number);

/** Bytes of device memory that are free, as one more program sees it. */
uint64_t free_memory(void);

/**
 * Until everything of every client is gone: there is no session any more. Runs one_program(): a
 * client that was killed early may have had no session, and a later one that runs well proves that
 * the service is behind it.
 */
void wait_closed(const struct service *service);

/**
 * A program that writes to variables of its module, reports it, and when it is ordered to reads
 * them, by a copy and by a kernel. Its end: 0 the values are its own, 2 they are not, 3 it was told
 * an error.
 */
int rememberer(int progress, int orders);
/** The same, but it has only asked where they are, and expects what the module was loaded with. */
int looker(int progress, int orders);
/** Counts in a variable that only kernels know, by launches or by graphs; on order again, and reads
 * it. Ends: 0 exact, 2 wrong, 3 told an error. */
int tallier(int progress, int orders);
int graph_tallier(int progress, int orders);
/** The same, of a module whose variables are in the program's own memory. */
int moved_tallier(int progress, int orders);
/** The same, but before the order no kernel has written it: it has found one, and launched
 * others. */
int late_tallier(int progress, int orders);

/**
 * A program that vouches for repetition: overwrites its output from an input that nothing writes,
 * checks every word of every round and reports the round; ends with 0 when it is ordered to, with 2
 * if a word was wrong.
 */
int survivor(int progress, int orders);

#endif
