// Entry points: memory and events of other programs of the same user.

#include "client/state/ipc.h"

#include "client/entry/entry.h"
#include "client/state/context.h"
#include "client/state/event.h"
#include "client/state/shared_event.h"
#include "client/state/start.h"

CUDA_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return handle ? ipc_export(address, handle) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	TRACE_CALL();
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	return ipc_open(context_current(), &handle, address);
}

CUDA_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUDA_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	TRACE_CALL();
	CUresult r = process_enter_context();

	return r == CUDA_SUCCESS ? ipc_close(context_current(), address) : r;
}

CUDA_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return handle ? event_export(event, handle) : CUDA_ERROR_INVALID_VALUE;
}

/* An event of another program's is in the session of its own device, whatever the context. */
CUDA_EXPORT CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS && !event)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = start_session(shared_event_device(&handle));
	return r == CUDA_SUCCESS ? event_import(context_current(), &handle, event) : r;
}
