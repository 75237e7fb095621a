// The service's own kernels, as text that the driver compiles when the executor starts: before the
// first client, because a load stops all running kernels. Without them (a driver that cannot
// compile) dependent operations return CUDA_ERROR_NOT_SUPPORTED.
//
// Their launches are launches of this context: a caller that counts launches to find a client's
// kernel by its number counts these as well.
//
// Two run on demand, in a gap, and take the first wait of a kind on themselves:
//   - The driver gives a context local memory for as many bytes a thread as any kernel has needed
//     so far. The first launch of a kernel that needs more waits until nothing runs, with a lock
//     that everybody's calls need (measured, H200, driver 580: nothing up to 1 KiB, from 2 KiB on
//     until the kernel beside it ended; not again for that many bytes or fewer). The first kernel
//     that can launch kernels waits likewise: not where 8 KiB a thread are there, but where 4 are.
//   - The first kernel that can call malloc(), or assert(), begins when nothing else runs
//     (measured, H100, driver 580.159.04; later kernels do not wait). Not at the start: a program's
//     request for a heap size has to come before.

#include <stdatomic.h>
#include <stdio.h>

#include "server/backend/cuda/cuda.h"

/* Each block checks 64 KiB, each of its 256 threads 16 pieces of 16 bytes, which lie side by side
 * with its neighbours'. The loads are for once: the clients' data stays in the caches. */
#define CHECK_BLOCK_BYTES   65536u
#define CHECK_BLOCK_THREADS 256u

static const char text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry frmps_check(.param .u64 address, .param .u32 pattern, .param .u64 word)\n"
	"{\n"
	"	.reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %d<6>;\n"
	"	ld.param.u64 %d1, [address]; ld.param.u32 %r1, [pattern]; ld.param.u64 %d2, [word];\n"
	"	mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, 65536; add.u64 %d1, %d1, %d3;\n"
	"	mov.u32 %r3, %tid.x; mul.wide.u32 %d4, %r3, 16; add.u64 %d1, %d1, %d4;\n"
	"	mov.u32 %r4, 0; mov.u32 %r5, 16;\n"
	"again:	ld.global.cs.v4.u32 {%r6, %r7, %r8, %r9}, [%d1];\n"
	"	xor.b32 %r6, %r6, %r1; or.b32 %r4, %r4, %r6; xor.b32 %r7, %r7, %r1; or.b32 %r4, %r4, %r7;\n"
	"	xor.b32 %r8, %r8, %r1; or.b32 %r4, %r4, %r8; xor.b32 %r9, %r9, %r1; or.b32 %r4, %r4, %r9;\n"
	"	add.u64 %d1, %d1, 4096; sub.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra again;\n"
	"	setp.eq.u32 %p2, %r4, 0; @%p2 ret;\n"
	"	mov.u32 %r10, 1; st.global.u32 [%d2], %r10; ret;\n"
	"}\n"
	".visible .entry frmps_stamp(.param .u64 word)\n"
	"{\n"
	"	.reg .b64 %d<3>;\n"
	"	ld.param.u64 %d1, [word]; mov.u64 %d2, %globaltimer; st.global.u64 [%d1], %d2; ret;\n"
	"}\n";

/* Never makes the call, unknown to the compiler. */
static const char calls_text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".extern .func (.param .b64 block) malloc (.param .b64 bytes);\n"
	".extern .func (.param .b32 count) vprintf (.param .b64 format, .param .b64 values);\n"
	".extern .func __assertfail (.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 "
	"function, "
	".param .b64 bytes);\n"
	".visible .entry frmps_calls(.param .u32 never)\n"
	"{\n"
	"	.reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
	"	ld.param.u32 %r1, [never]; setp.eq.u32 %p, %r1, 0; @%p ret;\n"
	"	cvt.u64.u32 %d1, %r1;\n"
	"	{ .param .b64 bytes; .param .b64 block;\n"
	"	st.param.b64 [bytes], %d1; call.uni (block), malloc, (bytes); ld.param.b64 %d2, [block]; }\n"
	"	{ .param .b64 format; .param .b64 values; .param .b32 count;\n"
	"	st.param.b64 [format], %d2; st.param.b64 [values], %d2;\n"
	"	call.uni (count), vprintf, (format, values); ld.param.b32 %r2, [count]; }\n"
	"	{ .param .b64 message; .param .b64 file; .param .b32 line; .param .b64 function; .param .b64 "
	"bytes;\n"
	"	st.param.b64 [message], %d2; st.param.b64 [file], %d2; st.param.b32 [line], %r2;\n"
	"	st.param.b64 [function], %d2; st.param.b64 [bytes], %d2;\n"
	"	call.uni __assertfail, (message, file, line, function, bytes); }\n"
	"	ret;\n"
	"}\n";

static CUfunction check, stamp, calls; /* NULL: not there */

CUresult cuda_kernel_load(CUlibrary library, const char *name, CUkernel *ret_kernel, CUfunction *ret_function)
{
	CUresult code = driver.library_kernel(ret_kernel, library, name);

	if (!code)
		code = driver.kernel_function(ret_function, *ret_kernel);
	return code ? code : driver.function_load(*ret_function);
}

static CUfunction find(CUlibrary library, const char *name)
{
	CUfunction function;
	CUkernel kernel;
	CUresult code = cuda_kernel_load(library, name, &kernel, &function);

	if (code)
		fprintf(stderr, "The service's own kernel %s cannot be loaded (code %d).\n", name, (int)code);
	return code ? NULL : function;
}

static CUlibrary load(const char *source)
{
	CUlibrary library = NULL;
	CUresult code = driver.library_load(&library, source, NULL, NULL, 0, NULL, NULL, 0);

	if (code)
		fprintf(stderr, "The service's own kernels cannot be loaded (code %d).\n", (int)code);
	return code ? NULL : library;
}

void cuda_builtin_open(void)
{
	CUlibrary library = load(text);

	if (library) {
		check = find(library, "frmps_check");
		stamp = find(library, "frmps_stamp");
	}
	library = load(calls_text);
	if (library)
		calls = find(library, "frmps_calls");
}

/*
 * Local memory
 */

/* A context's initial room: no kernel with so much was seen to wait. */
#define ROOM_AT_FIRST 1024
#define ROOM_MAX      (512 * 1024) /* of any kernel: the architecture's limit */
#define ROOM_STEP     256

/* With a single thread the kernel writes nothing but its room, unknown to the compiler, which
 * therefore leaves the code in. */
static const char room_text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry frmps_room()\n"
	"{\n"
	"	.local .align 16 .b8 room[%d];\n"
	"	.reg .pred %%p; .reg .b32 %%r<4>; .reg .b64 %%d<5>;\n"
	"	mov.u64 %%d1, room; mov.u32 %%r1, %%tid.x; mul.wide.u32 %%d2, %%r1, 4; add.u64 %%d2, %%d1, "
	"%%d2;\n"
	"	mov.u32 %%r2, %%ntid.x; mul.wide.u32 %%d3, %%r2, 4; add.u64 %%d3, %%d1, %%d3;\n"
	"	st.local.u32 [%%d2], %%r1; ld.local.u32 %%r3, [%%d3];\n"
	"	setp.eq.u32 %%p, %%r2, 77; mov.u64 %%d4, 0; @%%p st.global.u32 [%%d4], %%r3; ret;\n"
	"}\n";

static _Atomic int room = ROOM_AT_FIRST; /* bytes a thread that the context has for certain */

bool cuda_has_room(int bytes)
{
	return bytes <= atomic_load_explicit(&room, memory_order_relaxed);
}

static CUresult run_with(CUlibrary library)
{
	CUfunction function;
	CUkernel kernel;
	CUresult code = driver.library_kernel(&kernel, library, "frmps_room");

	if (!code)
		code = driver.kernel_function(&function, kernel);
	if (!code)
		code = driver.launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	return code ? code : driver.context_synchronize();
}

CUresult cuda_make_room(int bytes)
{
	CUlibrary library;
	char text_of_it[sizeof(room_text) + 16];
	CUresult code;

	if (bytes > ROOM_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	bytes = (bytes + ROOM_STEP - 1) / ROOM_STEP * ROOM_STEP;
	snprintf(text_of_it, sizeof(text_of_it), room_text, bytes);
	code = driver.library_load(&library, text_of_it, NULL, NULL, 0, NULL, NULL, 0);
	if (code)
		return code;
	code = run_with(library);
	if (!code)
		atomic_store_explicit(&room, bytes, memory_order_relaxed);
	driver.library_unload(library);
	return code;
}

/*
 * Functions of the driver's
 */

static _Atomic bool has_calls;

bool cuda_has_calls(void)
{
	return !calls || atomic_load_explicit(&has_calls, memory_order_relaxed);
}

CUresult cuda_make_calls(void)
{
	uint32_t never = 0;
	void *params[] = {&never};
	CUresult code = driver.launch(calls, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);

	if (!code)
		code = driver.context_synchronize();
	/* Where allocation fails (memory is short), further lookups do not try again. */
	atomic_store_explicit(&has_calls, true, memory_order_relaxed);
	return code;
}

/*
 * Sinks
 */

CUresult cuda_check(
	struct backend_stream *stream, uint64_t address, uint64_t bytes, uint32_t pattern, uint32_t *word)
{
	uint64_t out = (uintptr_t)word;
	void *params[] = {&address, &pattern, &out};

	if (!check)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!bytes)
		return CUDA_SUCCESS;
	return driver.launch(check, (unsigned int)(bytes / CHECK_BLOCK_BYTES), 1, 1, CHECK_BLOCK_THREADS, 1,
		1, 0, cuda_stream(stream), params, NULL);
}

/*
 * Time
 */

CUresult cuda_stamp(CUstream stream, uint64_t *word)
{
	uint64_t out = (uintptr_t)word;
	void *params[] = {&out};

	if (!stamp)
		return CUDA_ERROR_NOT_SUPPORTED;
	return driver.launch(stamp, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}
