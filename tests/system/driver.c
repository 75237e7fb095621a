// See driver.h.

#include "tests/system/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static CUmodule module;

void *read_file(const char *path)
{
	FILE *file = fopen(path ? path : "", "rb");
	char *bytes;
	long size;

	if (!file)
		ck_abort_msg("cannot open %s", path ? path : "FRMPS_TEST_KERNELS (not set)");
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	bytes = calloc(1, (size_t)size + 1);
	if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
		ck_abort_msg("cannot read %s", path);
	fclose(file);
	return bytes;
}

static size_t file_bytes(const char *path)
{
	struct stat status;

	ck_assert_int_eq(stat(path, &status), 0);
	return (size_t)status.st_size;
}

void *kernels_source(const char *behaviour)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	struct {
		uint32_t magic;
		uint16_t version, header_bytes;
		uint64_t payload_bytes;
	} header = {0xba55ed50, 1, 16, 0};
	struct {
		uint16_t kind, version;
		uint32_t header_bytes;
		uint64_t payload_bytes;
	} text = {1, 1, 16, 0};
	size_t bytes = file_bytes(path), length;
	void *object = read_file(path);
	char line[160], *whole;

	length = (size_t)snprintf(line, sizeof(line), "host-text%s\n", behaviour);
	text.payload_bytes = length + bytes;
	header.payload_bytes = sizeof(text) + text.payload_bytes;
	whole = malloc(sizeof(header) + header.payload_bytes);
	ck_assert_ptr_nonnull(whole);
	memcpy(whole, &header, sizeof(header));
	memcpy(whole + sizeof(header), &text, sizeof(text));
	memcpy(whole + sizeof(header) + sizeof(text), line, length);
	memcpy(whole + sizeof(header) + sizeof(text) + length, object, bytes);
	free(object);
	return whole;
}

bool is_native(void)
{
	return getenv("FRMPS_TEST_NATIVE") != NULL;
}

bool is_without_device(void)
{
	const char *backend = getenv("FRMPS_TEST_BACKEND");

	return !is_native() && (!backend || !strcmp(backend, "host"));
}

void driver_attach(void)
{
	const char *beside = getenv("FRMPS_TEST_BESIDE");
	int own = beside ? atoi(beside) : 0;
	CUcontext context;
	CUdevice device;

	ck_cuda(cuInit(0));
	for (int i = 0; i <= own; i++) {
		ck_cuda(cuDeviceGet(&device, i));
		ck_cuda(cuDevicePrimaryCtxRetain(&context, device));
	}
	ck_cuda(cuCtxSetCurrent(context));
}

void driver_open(void)
{
	driver_attach();
	kernels();
}

CUmodule kernels(void)
{
	if (!module) {
		void *image = read_file(getenv("FRMPS_TEST_KERNELS"));

		ck_cuda(cuModuleLoadData(&module, image));
		free(image);
	}
	return module;
}

CUfunction kernel(const char *name)
{
	CUfunction function;

	ck_cuda(cuModuleGetFunction(&function, kernels(), name));
	return function;
}

CUresult launch(const char *name, unsigned blocks, unsigned threads, CUstream stream, void **arguments)
{
	return cuLaunchKernel(kernel(name), blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
}

uint32_t mixed(uint32_t in, uint32_t round, uint32_t position)
{
	uint32_t x = in + round * UINT32_C(2654435761) + position;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

CUdeviceptr device_words(uint64_t count, uint32_t factor)
{
	uint32_t *words = malloc(count * sizeof(*words));
	CUdeviceptr device;

	if (!words)
		ck_abort_msg("no memory");
	for (uint64_t i = 0; i < count; i++)
		words[i] = (uint32_t)i * factor;
	ck_cuda(cuMemAlloc_v2(&device, count * sizeof(*words)));
	ck_cuda(cuMemcpyHtoD_v2(device, words, count * sizeof(*words)));
	free(words);
	return device;
}

uint32_t *shared_word(void)
{
	uint32_t *word;

	ck_cuda(cuMemHostAlloc((void **)&word, 4096, 0));
	memset(word, 0, 4096);
	return word;
}

CUresult launch_spin(uint32_t *word, uint32_t value, CUstream stream)
{
	void *arguments[] = {&word, &value};

	return launch("spin_until", 1, 1, stream, arguments);
}
