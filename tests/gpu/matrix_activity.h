// What survivors of the fault matrix do beside waiting for kernels, and how they launch these. One
// thread.

#ifndef FRMPS_TESTS_GPU_MATRIX_ACTIVITY_H
#define FRMPS_TESTS_GPU_MATRIX_ACTIVITY_H

#include <stdbool.h>

#include "bench/lib/driver.h"

/* The driver's first answer that was not success, and which call gave it. */
struct trouble {
	CUresult code;
	const char *call;
};

/** Notes a failure, the first one only. Return: whether the call failed. */
bool failed(struct trouble *trouble, CUresult code, const char *call);

enum launch_form { LAUNCH_PLAIN, LAUNCH_COOPERATIVE, LAUNCH_CLUSTERS, LAUNCH_GRAPH };

/** Return: false if there is no such form. @name: plain, cooperative, clusters, graph */
bool launch_form_of(const char *name, enum launch_form *ret_form);
/** Launches a kernel: as a cooperative one, in clusters of two blocks, or as a graph that is made
 * for this launch. */
bool launch_as(enum launch_form form, CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream,
	void **arguments, struct trouble *trouble);

/**
 * Prepares what is done once between two kernels:
 *   modules   a module is loaded, one of its kernels is run and checked, and the module is unloaded
 *   memory    memory is allocated, set, looked at and freed, and a stream made and destroyed
 *   copies    memory goes to the device, across it, and back
 * Return: false if there is no such activity. Ends the program if the driver refuses.
 */
bool activity_open(const char *name);
/**
 * Does it once and waits for it.
 * @wrong: of 96 bytes; gets what is not as it must be, if anything
 * Return: false if a call failed
 */
bool activity_round(struct trouble *trouble, char *wrong);
/** Return: how long the longest round since the last call of activity_forget() took, ns; 0 if there
 * is no activity. */
uint64_t activity_longest_ns(void);
void activity_forget(void);

#endif
