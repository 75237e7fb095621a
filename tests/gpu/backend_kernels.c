// backend_kernels FILE...: compares what the service reads of kernels (server/backend/kernels.h)
// with what the driver says of the same cubins: names, attributes, parameters. A file is a cubin,
// or anything with fat binaries in it, like a library of CUDA. Exit status 1 if anything differs,
// 77 without a GPU.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/backend/cuda/driver.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"
#include "server/backend/kernels.h"

#define ARCHITECTURE 90u
#define REASONS_MAX  32u
#define SHOWN	     12u

typedef CUresult attribute_fn(int *ret, CUfunction_attribute attribute, CUkernel kernel, CUdevice device);
typedef CUresult parameter_fn(CUkernel kernel, size_t index, size_t *ret_offset, size_t *ret_bytes);

static attribute_fn *kernel_attribute;
static parameter_fn *kernel_parameter;
static struct {
	unsigned long cubins, taken, kernels, differ, refused_by_driver;
	struct {
		const char *why;
		unsigned long count;
	} reasons[REASONS_MAX];
} seen;

static void differs(const char *name, const char *what, unsigned index, long ours, long theirs)
{
	if (seen.differ++ < SHOWN)
		printf("  %.90s: %s %u is %ld, the driver says %ld\n", name, what, index, ours, theirs);
}

static void count_reason(const char *why)
{
	unsigned i = 0;

	while (i < REASONS_MAX - 1 && seen.reasons[i].why && strcmp(seen.reasons[i].why, why))
		i++;
	seen.reasons[i].why = why;
	seen.reasons[i].count++;
}

static void compare_parameters(CUkernel theirs, const char *name, const struct backend_function_info *info)
{
	size_t offset, bytes;
	uint32_t i = 0;

	for (; i < BACKEND_PARAMS_MAX && !kernel_parameter(theirs, i, &offset, &bytes); i++)
		if (i < info->param_count &&
			(info->params[i].offset != offset || info->params[i].size != bytes))
			differs(name, "offset of parameter", i, (long)info->params[i].offset, (long)offset);
	if (i != info->param_count)
		differs(name, "parameters", 0, (long)info->param_count, (long)i);
}

static void compare(const struct kernels *kernels, CUkernel theirs)
{
	static struct backend_function_info info;
	const struct kernels_kernel *ours;
	const char *name = "";

	if (driver.kernel_name(&name, theirs) || !(ours = kernels_find(kernels, name)) ||
		!kernels_parameters(kernels, ours, &info)) {
		differs(name, "kernel", 0, 0, 1);
		return;
	}
	seen.kernels++;
	for (unsigned i = 0; i < BACKEND_FUNC_ATTRS; i++) {
		int value = 0;

		if (!kernel_attribute(&value, (CUfunction_attribute)i, theirs, 0) &&
			value != ours->attributes[i])
			differs(name, "attribute", i, ours->attributes[i], value);
	}
	compare_parameters(theirs, name, &info);
}

static void compare_all(const struct kernels *kernels, const uint8_t *cubin)
{
	CUkernel *all = NULL;
	CUlibrary library;
	unsigned count = 0;

	if (driver.library_load(&library, cubin, NULL, NULL, 0, NULL, NULL, 0)) {
		seen.refused_by_driver++;
		return;
	}
	if (!driver.library_count(&count, library) && (all = calloc(count + 1, sizeof(*all))) &&
		!driver.library_kernels(all, count, library))
		for (unsigned i = 0; i < count; i++)
			compare(kernels, all[i]);
	if (count != kernels->count)
		differs("a cubin", "kernels", 0, (long)kernels->count, (long)count);
	free(all);
	driver.library_unload(library);
}

/* fatbin_visit */
static CUresult look(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	struct kernels kernels;

	(void)context;
	(void)ret;
	seen.cubins++;
	if (kernels_open(&kernels, cubin, bytes)) {
		count_reason(kernels.why ? load_reason_text(kernels.why) : "no memory");
	} else {
		seen.taken++;
		compare_all(&kernels, cubin);
	}
	kernels_close(&kernels);
	return CUDA_SUCCESS;
}

static void look_at_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct fatbin_bytes unused = {0};
	struct fatbin_header header;
	struct stat file;
	uint8_t *bytes;

	if (fd < 0 || fstat(fd, &file)) {
		fprintf(stderr, "%s cannot be read\n", path);
		exit(2);
	}
	bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		exit(2);
	if (image_has_code(bytes, (size_t)file.st_size, ARCHITECTURE)) {
		look(NULL, bytes, (size_t)file.st_size, &unused);
	} else {
		for (size_t at = 0; at + sizeof(header) <= (size_t)file.st_size; at += 8) {
			memcpy(&header, bytes + at, sizeof(header));
			if (header.magic == FATBIN_MAGIC &&
				header.payload_bytes < (size_t)file.st_size - at &&
				image_check(bytes + at, header.header_bytes + header.payload_bytes) ==
					IMAGE_FATBIN)
				fatbin_rewrite(bytes + at, ARCHITECTURE, UINT64_MAX, look, NULL, &unused);
		}
	}
	munmap(bytes, (size_t)file.st_size);
}

int main(int count, char **paths)
{
	char text[256];
	CUcontext context;
	void *library;

	if (driver_open(text, sizeof(text)) || driver.init(0) || driver.primary_retain(&context, 0) ||
		driver.context_set(context)) {
		printf("no GPU\n");
		return 77;
	}
	library = dlopen(driver.path, RTLD_NOW);
	kernel_attribute = (attribute_fn *)dlsym(library, "cuKernelGetAttribute");
	kernel_parameter = (parameter_fn *)dlsym(library, "cuKernelGetParamInfo");
	if (!kernel_attribute || !kernel_parameter) {
		printf("the driver does not tell of kernels\n");
		return 77;
	}
	for (int i = 1; i < count; i++)
		look_at_file(paths[i]);
	printf("%lu of %lu cubins can be placed; %lu kernels compared, %lu differences; %lu cubins the "
	       "driver does not "
	       "take\n",
		seen.taken, seen.cubins, seen.kernels, seen.differ, seen.refused_by_driver);
	for (unsigned i = 0; i < REASONS_MAX && seen.reasons[i].why; i++)
		printf("  not placed, %lu: %s\n", seen.reasons[i].count, seen.reasons[i].why);
	return seen.differ != 0;
}
