// Entry points: checkpoints of a process that uses the service. The caller is any program, which
// need not use the driver otherwise. The service does what is asked with the process's session
// (server/control/checkpoint.h), and knows the process by its number.
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

/* Asks for each device of the service until one knows the process: a device may be missing. */
static CUresult ask_devices(const struct wire_names *arguments, unsigned patience_s, char **ret_text)
{
	CUresult code = CUDA_ERROR_MPS_CONNECTION_FAILED;

	*ret_text = NULL;
	for (unsigned i = 0; i < PLACE_DEVICES; i++) {
		char *text;
		CUresult next = ask_service(i, "process", arguments, patience_s, &text);

		if (next == CUDA_ERROR_MPS_CONNECTION_FAILED)
			continue;
		free(*ret_text);
		*ret_text = text;
		code = next;
		if (code != CUDA_ERROR_INVALID_VALUE)
			break;
	}
	return code;
}

/* @ret_state: NULL: not wanted. Return: the service's code, after a line that says why */
static CUresult order(int pid, const char *what, const char *argument, CUprocessState *ret_state)
{
	char number[16], reason[256] = "";
	const char *words[] = {number, what, argument};
	const struct wire_names arguments = {words, argument ? 3 : 2};
	uint32_t state = 0;
	char *text;
	CUresult code;

	snprintf(number, sizeof(number), "%d", pid);
	code = ask_devices(&arguments, ret_state ? PATIENCE_S : NO_LIMIT, &text);
	if (code != CUDA_SUCCESS && text)
		ask_text(text, "reason", reason, sizeof(reason));
	if (code != CUDA_SUCCESS)
		client_log(CLIENT_LOG_INFO, "%s of process %d: error %d%s%s", what, pid, (int)code,
			*reason ? ": " : "", reason);
	else if (ret_state && (!text || !ask_small(text, "state", &state)))
		code = CUDA_ERROR_MPS_RPC_FAILURE;
	free(text);
	if (code == CUDA_SUCCESS && ret_state)
		*ret_state = (CUprocessState)state;
	return code;
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

/* The service has one device: each pair can only name it twice. */
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
		client_log(CLIENT_LOG_INFO, "restore of process %d: the service has one device", pid);
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
