// The kernels of the trial (trial.h), as text that the driver compiles. A trap leaves a stopped
// warp with a record; a write to an unmapped address ends its warp, and leaves the error state of a
// multiprocessor alone (exception.c). After a jump to nowhere a warp is not in its kernel's code,
// and is led there (handler.h).

#include "server/backend/trial.h"

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"

/* tally: 8 bytes for each thread of a block */
#define THREADS 32

static const char text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry frmps_trial_beside(.param .u64 counts, .param .u64 results, .param .u64 gate)\n"
	"{\n"
	"	.shared .align 8 .b8 tally[256];\n"
	"	.reg .pred %p1; .reg .b32 %r<5>; .reg .b64 %d<9>;\n"
	"	ld.param.u64 %d1, [counts]; ld.param.u64 %d2, [results]; ld.param.u64 %d3, [gate];\n"
	"	mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r2, %r2, %r3, "
	"%r1;\n"
	"	mul.wide.u32 %d4, %r2, 8; add.u64 %d1, %d1, %d4; mul.wide.u32 %d4, %r2, 16;\n"
	"	add.u64 %d2, %d2, %d4; mov.u64 %d5, tally; mul.wide.u32 %d4, %r1, 8; add.u64 %d5, %d5, %d4;\n"
	"	mov.u64 %d6, 0; st.volatile.shared.u64 [%d5], %d6;\n"
	"again:	add.u64 %d6, %d6, 1;\n"
	"	ld.volatile.shared.u64 %d7, [%d5]; add.u64 %d7, %d7, 1; st.volatile.shared.u64 [%d5], %d7;\n"
	"	ld.volatile.global.u64 %d8, [%d1]; add.u64 %d8, %d8, 1; st.volatile.global.u64 [%d1], %d8;\n"
	"	ld.volatile.global.u32 %r4, [%d3]; setp.eq.u32 %p1, %r4, 0; @%p1 bra again;\n"
	"	st.global.u64 [%d2], %d6; st.global.u64 [%d2+8], %d7; ret;\n"
	"}\n"
	".visible .entry frmps_trial_trap() { trap; ret; }\n"
	".visible .entry frmps_trial_write()\n"
	"{\n"
	"	.reg .b32 %r; .reg .b64 %d;\n"
	"	mov.u64 %d, 64; mov.u32 %r, 1; st.volatile.global.u32 [%d], %r; ret;\n"
	"}\n"
	".visible .entry frmps_trial_jump()\n"
	"{\n"
	"	.reg .b64 %d;\n"
	"	mov.u64 %d, 0xdead0000;\n"
	"form:	.callprototype _ ();\n"
	"	call %d, form;\n"
	"	ret;\n"
	"}\n";

static CUresult compile(const void *image, size_t bytes, void **ret_code, size_t *ret_bytes)
{
	return jit_compile(CU_JIT_INPUT_PTX, image, bytes, 0, NULL, NULL, ret_code, ret_bytes);
}

const struct trial_kernels cuda_trial = {
	.image = text,
	.bytes = sizeof(text),
	.compile = compile,
	.survivor = "frmps_trial_beside",
	.blocks = 16,
	.threads = THREADS,
	.culprits = {{"frmps_trial_trap", CUDA_ERROR_LAUNCH_FAILED},
		{"frmps_trial_write", CUDA_ERROR_ILLEGAL_ADDRESS},
		{"frmps_trial_jump", CUDA_ERROR_ILLEGAL_ADDRESS}},
};
