// NVIDIA's compiler of PTX and linker of device code by themselves, as the driver's
// libnvidia-ptxjitcompiler exports them: nvPTXCompiler, which the CUDA Toolkit documents, and a
// linker in the same manner, which nothing documents. Neither needs a device or a context, and so
// memory of a device, as the driver's own linker does. Filled once by nvjit_open(), before the
// process has a second thread that uses the library; read-only after.

#ifndef FRMPS_SERVER_BACKEND_CUDA_NVJIT_H
#define FRMPS_SERVER_BACKEND_CUDA_NVJIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *nvjit_handle;

/* Of compiler and linker alike. */
struct nvjit_logs {
	int (*error_bytes)(nvjit_handle handle, size_t *ret);
	int (*errors)(nvjit_handle handle, char *ret);
	int (*remark_bytes)(nvjit_handle handle, size_t *ret);
	int (*remarks)(nvjit_handle handle, char *ret);
};

/* All functions return 0 or an error. */
struct nvjit {
	unsigned arch; /* that is compiled for: 10 * major + minor. Set before */
	int (*ptx_create)(nvjit_handle *ret, size_t bytes, const char *text);
	int (*ptx_compile)(nvjit_handle handle, int count, const char *const *options);
	int (*ptx_destroy)(nvjit_handle *handle);
	int (*ptx_bytes)(nvjit_handle handle, size_t *ret);
	int (*ptx_code)(nvjit_handle handle, void *ret);
	struct nvjit_logs ptx_logs;
	int (*link_create)(nvjit_handle *ret, uint32_t count, const char *const *options);
	int (*link_add)(nvjit_handle handle, const void *cubin, size_t bytes, const char *name);
	int (*link_finish)(nvjit_handle handle);
	int (*link_destroy)(nvjit_handle *handle);
	int (*link_bytes)(nvjit_handle handle, size_t *ret);
	int (*link_code)(nvjit_handle handle, void *ret);
	struct nvjit_logs link_logs;
};

extern struct nvjit nvjit;

/** Opens the library, unless already open or known to fail. Return: true if the library is open */
bool nvjit_open(void);

/* The messages so far: lines, without a newline after the last. */
struct nvjit_log {
	char errors[8192], remarks[8192];
};

/** Adds the messages of a compiler or linker, as far as there is room. */
void nvjit_take_log(const struct nvjit_logs *logs, nvjit_handle handle, struct nvjit_log *log);

#endif
