// Entry points: memory pools that processes share.

#include "client/entry/entry.h"

#include <string.h>

#include "client/state/mempool.h"
#include "client/state/poolshare.h"

static CUresult check_type(CUmemAllocationHandleType type, unsigned long long flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUDA_EXPORT CUresult cuMemPoolExportToShareableHandle(
	void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = process_enter();
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (!shareable || !mempool_is(pool))
		return CUDA_ERROR_INVALID_VALUE;
	r = check_type(type, flags);
	if (r == CUDA_SUCCESS)
		r = poolshare_export(pool, &fd);
	if (r == CUDA_SUCCESS)
		memcpy(shareable, &fd, sizeof(fd));
	return r;
}

CUDA_EXPORT CUresult cuMemPoolImportFromShareableHandle(
	CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	r = check_type(type, flags);
	return r == CUDA_SUCCESS ? poolshare_import((int)(intptr_t)shareable, pool) : r;
}

CUDA_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	return data ? poolshare_export_pointer(address, data) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuMemPoolImportPointer(
	CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return address && data && mempool_is(pool) ? poolshare_import_pointer(pool, data, address)
						   : CUDA_ERROR_INVALID_VALUE;
}
