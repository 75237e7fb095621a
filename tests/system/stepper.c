// A program of the driver API that knows nothing of frmps and works when it is told to, for the
// scripts that test an installed service: install.sh and ../package/. It takes libcuda.so.1 from
// where the loader finds it.
//
//   stepper MODULE
//
// Each line of standard input is one launch of the module's kernel `fill`, whose result is copied
// back and compared. Each answer is one line: "ok", "wrong", or the name of the error. Exit status:
// 0 if every answer was "ok", else 1.

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "protocol/cuda_abi.h"

#define WORDS 4096u

static CUresult (*cu_init)(unsigned);
static CUresult (*cu_retain)(CUcontext *, CUdevice);
static CUresult (*cu_set_current)(CUcontext);
static CUresult (*cu_load)(CUmodule *, const char *);
static CUresult (*cu_function)(CUfunction *, CUmodule, const char *);
static CUresult (*cu_alloc)(CUdeviceptr *, size_t);
static CUresult (*cu_launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
	CUstream, void **, void **);
static CUresult (*cu_down)(void *, CUdeviceptr, size_t);
static CUresult (*cu_error_name)(CUresult, const char **);

static const struct {
	void *pointer;
	const char *name;
} calls[] = {
	{&cu_init, "cuInit"},
	{&cu_retain, "cuDevicePrimaryCtxRetain"},
	{&cu_set_current, "cuCtxSetCurrent"},
	{&cu_load, "cuModuleLoad"},
	{&cu_function, "cuModuleGetFunction"},
	{&cu_alloc, "cuMemAlloc_v2"},
	{&cu_launch, "cuLaunchKernel"},
	{&cu_down, "cuMemcpyDtoH_v2"},
	{&cu_error_name, "cuGetErrorName"},
};

static CUfunction fill;
static CUdeviceptr words;

static bool open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	for (size_t i = 0; library && i < sizeof(calls) / sizeof(calls[0]); i++) {
		*(void **)calls[i].pointer = dlsym(library, calls[i].name);
		if (!*(void **)calls[i].pointer)
			return false;
	}
	return library != NULL;
}

static CUresult begin(const char *path)
{
	CUcontext context;
	CUmodule module;
	CUresult r = cu_init(0);

	r = r ? r : cu_retain(&context, 0);
	r = r ? r : cu_set_current(context);
	r = r ? r : cu_load(&module, path);
	r = r ? r : cu_function(&fill, module, "fill");
	return r ? r : cu_alloc(&words, WORDS * sizeof(uint32_t));
}

static CUresult step(uint32_t value, bool *ret_right)
{
	static uint32_t back[WORDS];
	uint64_t count = WORDS;
	void *parameters[] = {&words, &value, &count};
	CUresult r = cu_launch(fill, 4, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL);

	r = r ? r : cu_down(back, words, sizeof(back));
	*ret_right = true;
	for (uint32_t i = 0; i < WORDS; i++)
		*ret_right = *ret_right && back[i] == value;
	return r;
}

/* Return: whether all is well. */
static bool answer(CUresult result, bool right)
{
	const char *name = right ? "ok" : "wrong";

	if (result && cu_error_name(result, &name))
		name = "an error without a name";
	puts(name);
	fflush(stdout);
	return !result && right;
}

int main(int count, char **arguments)
{
	char line[64];
	bool good = true, right = true;
	CUresult result;

	if (count != 2 || !open_driver()) {
		fprintf(stderr, "stepper: %s\n", count != 2 ? "wrong usage" : dlerror());
		return 1;
	}
	result = begin(arguments[1]);
	if (result)
		return !answer(result, right);
	for (uint32_t value = 1; fgets(line, sizeof(line), stdin); value++) {
		result = step(value, &right);
		good = answer(result, right) && good;
	}
	return !good;
}
