// Conditions of graphs. A handle of the driver belongs to a single graph in a single context, but a
// program uses its own handle while the session passes from executor to executor, and passes the
// handle to kernels in any way. So its handle is the address of a word of the program's device
// memory. Kernels that set conditions get a function of ours when they are loaded, in the place of
// the driver's: ours writes the value there (patch.h). Before each conditional node, and at the end
// of a loop's body, a kernel of ours sets the driver's condition to the value of the word.
//
// That kernel also checks if the session has ended: then a loop ends regardless of its kernels, for
// a kernel that faulted would do so again in the next turn.
//
// Objects of the opening belong to the context; module thread, then executor threads.

#include "server/backend/cuda/condition.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/patch.h"
#include "server/log.h"

#define SETTER "cudaGraphSetConditional"
/* Callers of a function of the driver have this many registers. */
#define REGISTERS 24u

static const char setter_text[] = ".version 7.0\n"
				  ".target sm_70\n"
				  ".address_size 64\n"
				  ".visible .func " SETTER " (.param .b64 handle, .param .b32 value)\n"
				  "{\n"
				  "	.reg .b32 %r<2>; .reg .b64 %d<2>;\n"
				  "	ld.param.u64 %d1, [handle]; ld.param.u32 %r1, [value];\n"
				  "	st.volatile.u32 [%d1], %r1; ret;\n"
				  "}\n";

/* @none: the value at which no body runs */
static const char teller_text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".extern .func " SETTER " (.param .b64 handle, .param .b32 value);\n"
	".visible .entry frmps_condition(.param .u64 word, .param .u64 over, .param .u64 handle, .param .u32 "
	"none)\n"
	"{\n"
	"	.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<5>;\n"
	"	ld.param.u64 %d1, [word]; ld.param.u64 %d2, [over]; ld.param.u64 %d3, [handle];\n"
	"	ld.param.u32 %r2, [none]; ld.volatile.global.u32 %r1, [%d1]; ld.volatile.global.u64 %d4, "
	"[%d2];\n"
	"	setp.ne.u64 %p1, %d4, 0; selp.b32 %r3, %r2, %r1, %p1;\n"
	"	{ .param .b64 a; st.param.b64 [a], %d3; .param .b32 b; st.param.b32 [b], %r3;\n"
	"	call.uni " SETTER ", (a, b); }\n"
	"	ret;\n"
	"}\n";

static struct {
	void *cubin; /* the setter's; NULL: there is none */
	struct patch_function setter;
	struct cuda_kernel teller; /* function NULL: there is none */
} conditions;

/* Kernels have the driver's setter, which would take an address for a handle. */
static _Atomic bool unpatched;

static bool make_setter(void)
{
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *registers = (void *)(uintptr_t)REGISTERS;
	size_t bytes;

	return !jit_compile(CU_JIT_INPUT_PTX, setter_text, sizeof(setter_text), 1, &option, &registers,
		       &conditions.cubin, &bytes) &&
	       patch_take(conditions.cubin, bytes, SETTER, &conditions.setter);
}

static bool load_teller(void)
{
	CUlibrary library;
	CUresult code = driver.library_load(&library, teller_text, NULL, NULL, 0, NULL, NULL, 0);

	if (!code)
		code = cuda_kernel_load(
			library, "frmps_condition", &conditions.teller.kernel, &conditions.teller.function);
	return !code;
}

void cuda_condition_open(void)
{
	atomic_store_explicit(&unpatched, false, memory_order_relaxed);
	if (driver.graph_condition && driver.graph_add_node && make_setter() && load_teller())
		return;
	log_info("graphs with conditional nodes are refused: the driver has none, or the service's own "
		 "functions for them cannot be compiled");
	cuda_condition_close();
}

void cuda_condition_close(void)
{
	free(conditions.cubin);
	conditions.cubin = NULL;
	conditions.teller = (struct cuda_kernel){0};
}

CUresult cuda_condition_direct(const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	CUresult code;

	if (!patch_wants(cubin, bytes, SETTER))
		return CUDA_SUCCESS;
	code = conditions.cubin ? patch_in(cubin, bytes, &conditions.setter, ret) : CUDA_ERROR_NOT_SUPPORTED;
	if (!code || code == CUDA_ERROR_OUT_OF_MEMORY)
		return code;
	if (!atomic_exchange(&unpatched, true))
		log_warning("a module's kernels set conditions of graphs in a way that is not known: graphs "
			    "with conditional nodes are refused from now on");
	return CUDA_SUCCESS;
}

CUresult cuda_condition_add(CUgraph graph, const struct backend_node *node, CUgraphConditionalHandle handle,
	CUcontext context, bool group, CUgraphNode *ret_node)
{
	const struct frmps_condition *condition = node->condition;
	uint64_t word = condition->word, over = (uintptr_t)node->over;
	uint32_t none = condition->kind == CU_GRAPH_COND_TYPE_SWITCH ? UINT32_MAX : 0;
	void *params[] = {&word, &over, &handle, &none};
	const CUDA_KERNEL_NODE_PARAMS form = {
		.func = group ? NULL : conditions.teller.function,
		.kern = conditions.teller.kernel,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = params,
		.ctx = context,
	};

	if (!conditions.teller.function || atomic_load_explicit(&unpatched, memory_order_relaxed))
		return CUDA_ERROR_NOT_SUPPORTED;
	return driver.graph_add_kernel(ret_node, graph, NULL, 0, &form);
}
