// Opening the driver under test. See driver.h.

#include "bench/lib/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct driver cu;

/* empty: nothing. spin(out, ns): a thread of each block waits ns nanoseconds of the device's timer,
 * and finally stores the timer at *out, if out is not null. tally(cells, ns, round): counts itself
 * in cells[0], waits, counts itself in cells[1]; sets cells[2] to 1 if either count is not its own
 * number, because a kernel was lost, cut, repeated or out of order. A single thread. */
static const char ptx[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry empty() { ret; }\n"
	".visible .entry spin(.param .u64 out, .param .u64 ns) {\n"
	"  .reg .u64 %begin, %now, %ns, %out; .reg .pred %more, %none;\n"
	"  ld.param.u64 %ns, [ns]; ld.param.u64 %out, [out];\n"
	"  mov.u64 %begin, %globaltimer;\n"
	"again: mov.u64 %now, %globaltimer;\n"
	"  sub.u64 %now, %now, %begin; setp.lt.u64 %more, %now, %ns; @%more bra again;\n"
	"  setp.eq.u64 %none, %out, 0; @%none bra done;\n"
	"  mov.u64 %now, %globaltimer; st.global.u64 [%out], %now;\n"
	"done: ret; }\n"
	".visible .entry tally(.param .u64 cells, .param .u64 ns, .param .u32 round) {\n"
	"  .reg .u64 %begin, %now, %ns, %cells; .reg .u32 %round, %next, %found; .reg .pred %more, %same;\n"
	"  ld.param.u64 %ns, [ns]; ld.param.u64 %cells, [cells]; ld.param.u32 %round, [round];\n"
	"  add.u32 %next, %round, 1;\n"
	"  ld.volatile.global.u32 %found, [%cells]; setp.eq.u32 %same, %found, %round; @%same bra first;\n"
	"  st.volatile.global.u32 [%cells+8], 1;\n"
	"first: st.volatile.global.u32 [%cells], %next;\n"
	"  mov.u64 %begin, %globaltimer;\n"
	"again: mov.u64 %now, %globaltimer;\n"
	"  sub.u64 %now, %now, %begin; setp.lt.u64 %more, %now, %ns; @%more bra again;\n"
	"  ld.volatile.global.u32 %found, [%cells+4]; setp.eq.u32 %same, %found, %round; @%same bra last;\n"
	"  st.volatile.global.u32 [%cells+8], 1;\n"
	"last: st.volatile.global.u32 [%cells+4], %next;\n"
	"  ret; }\n";

void driver_check(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "bench: %s failed with %d\n", what, (int)result);
	exit(1);
}

static void *symbol(void *library, const char *name)
{
	void *at = dlsym(library, name);

	if (!at) {
		fprintf(stderr, "bench: no %s in libcuda.so.1\n", name);
		exit(1);
	}
	return at;
}

void driver_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUdevice device;
	CUcontext context;

	if (!library) {
		fprintf(stderr, "bench: %s\n", dlerror());
		exit(77);
	}
#define D(s, name, arguments) *(void **)&cu.name = symbol(library, #s);
#include "bench/lib/driver.def"
#undef D
	driver_check(cu.init(0), "cuInit");
	driver_check(cu.device_get(&device, 0), "cuDeviceGet");
	driver_check(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
	driver_check(cu.set_current(context), "cuCtxSetCurrent");
}

void *driver_read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *bytes = NULL;
	long size = -1;

	if (file && fseek(file, 0, SEEK_END) == 0)
		size = ftell(file);
	if (size >= 0)
		bytes = calloc(1, (size_t)size + 1);
	if (bytes) {
		rewind(file);
		if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
			size = -1;
	}
	if (!bytes || size < 0) {
		perror(path);
		exit(1);
	}
	fclose(file);
	return bytes;
}

CUmodule driver_module(void)
{
	const char *path = getenv("FRMPS_BENCH_MODULE");
	void *image = path ? driver_read_file(path) : NULL;
	CUmodule module;

	driver_check(cu.module_load(&module, image ? image : ptx), "cuModuleLoadData");
	free(image);
	return module;
}

CUfunction driver_function(CUmodule module, const char *name)
{
	CUfunction function;

	driver_check(cu.function(&function, module, name), name);
	return function;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

double driver_environment(const char *name, double otherwise)
{
	const char *value = getenv(name);

	return value ? strtod(value, NULL) : otherwise;
}

void driver_sleep_until(uint64_t ns)
{
	struct timespec moment = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
		;
}

uint64_t driver_wait_for_start(void)
{
	char line[64];
	uint64_t start = 0;

	printf("{\"name\": \"ready\"}\n");
	fflush(stdout);
	if (fgets(line, sizeof(line), stdin))
		start = strtoull(line, NULL, 10);
	if (!start)
		return now_ns();
	driver_sleep_until(start);
	return start;
}
