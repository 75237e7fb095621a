// Entry points: checkpoints of a process that uses the service. The caller is any program, which
// need not use the driver otherwise. The service of each device does what is asked with the
// process's session there (server/control/checkpoint.h), and knows the process by its number.
//
// Programs have no thread that takes part: cuCheckpointProcessGetRestoreThreadId() names the main
// thread, so that a tool that lets this thread run meanwhile finds one.

#include "client/entry/entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/ask.h"
#include "client/state/log.h"
#include "protocol/place.h"

/* Of the question for the state, seconds. An order takes as long as it takes. */
#define PATIENCE_S 60u
#define NO_LIMIT   0u

/* An order to the service, as the operator's program gives it. */
struct order {
	int pid;
	const char *what, *argument; /* NULL: none */
	unsigned patience_s;
};

/* Steps, and what takes each back. */
static const struct step {
	const char *what, *back, *argument;
} steps[] = {{"lock", "unlock", NULL}, {"checkpoint", "restore", NULL}, {"restore", "checkpoint", NULL},
	{"unlock", "lock", "0"}};

/* Gives the order to the service of one device. @ret_state: written for the question for it.
 * Return: the service's code, after a line that says why; CUDA_ERROR_INVALID_VALUE: the process
 * is unknown there */
static CUresult order_one(unsigned device, const struct order *order, uint32_t *ret_state)
{
	char number[16], reason[256] = "";
	const char *words[] = {number, order->what, order->argument};
	const struct wire_names arguments = {words, order->argument ? 3 : 2};
	char *text;
	CUresult code;

	snprintf(number, sizeof(number), "%d", order->pid);
	code = ask_service(device, "process", &arguments, order->patience_s, &text);
	if (code != CUDA_SUCCESS && text)
		ask_text(text, "reason", reason, sizeof(reason));
	if (code != CUDA_SUCCESS && code != CUDA_ERROR_MPS_CONNECTION_FAILED)
		client_log(CLIENT_LOG_INFO, "%s of process %d: error %d%s%s", order->what, order->pid,
			(int)code, *reason ? ": " : "", reason);
	else if (code == CUDA_SUCCESS && ret_state && (!text || !ask_small(text, "state", ret_state)))
		code = CUDA_ERROR_MPS_RPC_FAILURE;
	free(text);
	return code;
}

/* A step failed on a device: the process is to be as before on those that took it. */
static void take_back(const struct order *order, const bool took[PLACE_DEVICES])
{
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		const struct order back = {order->pid, steps[i].back, steps[i].argument, NO_LIMIT};

		if (strcmp(order->what, steps[i].what) != 0)
			continue;
		for (unsigned device = 0; device < PLACE_DEVICES; device++)
			if (took[device])
				order_one(device, &back, NULL);
	}
}

/* The state of a process on several devices: its error counts, else where it has come least far. */
static void merge(uint32_t *state, uint32_t other, bool first)
{
	if (first || other == CU_PROCESS_STATE_FAILED ||
		(*state != CU_PROCESS_STATE_FAILED && other < *state))
		*state = other;
}

/* Gives the order for each device on which the process works; a device may be missing.
 * @ret_state: NULL: not wanted. Return: CUDA_SUCCESS, or the first error of a device that knows the
 * process, else of one that answers */
static CUresult order(int pid, const char *what, const char *argument, CUprocessState *ret_state)
{
	const struct order order = {pid, what, argument, ret_state ? PATIENCE_S : NO_LIMIT};
	CUresult code = CUDA_ERROR_MPS_CONNECTION_FAILED;
	bool took[PLACE_DEVICES] = {false}, any = false;
	uint32_t state = 0, other = 0;

	for (unsigned i = 0; i < PLACE_DEVICES; i++) {
		CUresult next = order_one(i, &order, ret_state ? &other : NULL);

		if (next == CUDA_SUCCESS) {
			merge(&state, other, !any);
			took[i] = any = true;
		} else if (next == CUDA_ERROR_INVALID_VALUE) {
			code = next;
		} else if (next != CUDA_ERROR_MPS_CONNECTION_FAILED) {
			take_back(&order, took);
			return next;
		}
	}
	if (!any)
		return code;
	if (ret_state)
		*ret_state = (CUprocessState)state;
	return CUDA_SUCCESS;
}

/* True if there are no arguments, or all their bytes are 0. */
static bool is_empty(const void *bytes, size_t count)
{
	static const unsigned char zeros[sizeof(CUcheckpointRestoreArgs)];

	return !bytes || memcmp(bytes, zeros, count) == 0;
}

CUDA_EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	if (!state || pid <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return order(pid, "state", NULL, state);
}

CUDA_EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	CUprocessState state;
	CUresult code;

	if (!tid || pid <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	code = order(pid, "state", NULL, &state);
	if (code == CUDA_SUCCESS)
		*tid = pid;
	return code;
}

CUDA_EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	char limit[16];

	if (pid <= 0 || (args && (args->reserved0 || !is_empty(args->reserved1, sizeof(args->reserved1)))))
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(limit, sizeof(limit), "%u", args ? args->timeoutMs : 0);
	return order(pid, "lock", limit, NULL);
}

CUDA_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	if (pid <= 0 || !is_empty(args, sizeof(*args)))
		return CUDA_ERROR_INVALID_VALUE;
	return order(pid, "checkpoint", NULL, NULL);
}

/* Memory returns to the device that it came from. */
static bool changes_device(const CUcheckpointRestoreArgs *args)
{
	for (unsigned int i = 0; i < args->gpuPairsCount; i++)
		if (memcmp(&args->gpuPairs[i].oldUuid, &args->gpuPairs[i].newUuid, sizeof(CUuuid)) != 0)
			return true;
	return false;
}

CUDA_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	if (pid <= 0 || (args && (args->reserved1 || !is_empty(args->reserved, sizeof(args->reserved)) ||
					 (args->gpuPairsCount && !args->gpuPairs))))
		return CUDA_ERROR_INVALID_VALUE;
	if (args && changes_device(args)) {
		client_log(
			CLIENT_LOG_INFO, "restore of process %d: memory returns only to its own device", pid);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return order(pid, "restore", NULL, NULL);
}

CUDA_EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	if (pid <= 0 || !is_empty(args, sizeof(*args)))
		return CUDA_ERROR_INVALID_VALUE;
	return order(pid, "unlock", NULL, NULL);
}
