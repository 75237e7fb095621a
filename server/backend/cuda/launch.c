// Kernel launches: the hot operation of the backend. No allocation, no lock, no lookup: the packed
// argument bytes of a record already have the layout of the kernel's parameters, so the driver gets
// pointers into them. A kernel that the service has loaded itself gets a copy, followed by the
// kernel's tables and address (loader.h).
//
// Executor threads; several at once for different streams.

#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/loader.h"
#include "server/backend/trampoline_image.h"

_Static_assert(sizeof(struct frmps_launch_attribute) == sizeof(CUlaunchAttribute) &&
		       offsetof(struct frmps_launch_attribute, value) == offsetof(CUlaunchAttribute, value),
	"an attribute on the ring has the driver's form");

static const struct loader_kernel *own_kernel(const struct backend_launch *launch)
{
	return cuda_kernel(launch->function)->own;
}

static void pack(struct cuda_arguments *arguments, uint8_t *bytes, size_t count)
{
	arguments->bytes = count;
	arguments->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	arguments->extra[1] = bytes;
	arguments->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	arguments->extra[3] = &arguments->bytes;
	arguments->extra[4] = CU_LAUNCH_PARAM_END;
	arguments->packed = arguments->extra;
}

/* One by one, as cuLaunchCooperativeKernel() takes parameters: with a packed form the driver did
 * not make cooperative nodes of graphs. */
static void point(struct cuda_arguments *arguments, size_t count)
{
	unsigned i = 0;

	_Static_assert(CUDA_CARRIED_MAX <= CUDA_POINTERS_MAX * TRAMPOLINE_PARAMETER_BYTES, "");
	for (size_t at = 0; at < count; at += TRAMPOLINE_PARAMETER_BYTES)
		arguments->pointers[i++] = arguments->carried + at;
	arguments->params = arguments->pointers;
}

void cuda_arguments_init(struct cuda_arguments *arguments, const struct backend_launch *launch)
{
	const struct backend_function_info *info = launch->info;
	uint8_t *bytes = (uint8_t *)(uintptr_t)launch->arguments;

	arguments->params = NULL;
	arguments->packed = NULL;
	if (own_kernel(launch)) {
		loader_carry(own_kernel(launch), launch, arguments->carried);
		if (launch->cooperative)
			point(arguments, own_kernel(launch)->carried);
		else
			pack(arguments, arguments->carried, own_kernel(launch)->carried);
	} else if (info->param_count && info->param_count <= CUDA_POINTERS_MAX) {
		for (uint32_t i = 0; i < info->param_count; i++)
			arguments->pointers[i] = bytes + info->params[i].offset;
		arguments->params = arguments->pointers;
	} else if (launch->argument_bytes) {
		pack(arguments, bytes, launch->argument_bytes);
	}
}

/* Events and graph nodes of the client mean nothing to the driver; numbers we do not know could be
 * anything.
 */
static bool carries_data_only(uint32_t id)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
	case 15:
		return false;
	default:
		return id <= CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
	}
}

CUresult cuda_attributes(
	const struct frmps_launch_attribute *attributes, uint32_t count, CUlaunchAttribute *ret_out)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!carries_data_only(attributes[i].id))
			return CUDA_ERROR_NOT_SUPPORTED;
		memcpy(&ret_out[i], &attributes[i], sizeof(ret_out[i]));
	}
	return CUDA_SUCCESS;
}

CUresult cuda_launch_check(const struct backend_launch *launch)
{
	if (launch->argument_bytes < launch->info->argument_bytes)
		return CUDA_ERROR_INVALID_VALUE; /* the driver would read past the record */
	return own_kernel(launch) ? loader_check(own_kernel(launch), launch) : CUDA_SUCCESS;
}

uint32_t cuda_shared(const struct backend_function *function, uint64_t bytes)
{
	const struct loader_kernel *own = ((const struct cuda_kernel *)(const void *)function)->own;
	uint64_t all = bytes + (own ? own->shared : 0);

	return all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
}

CUresult cuda_launch_attributes(
	const struct backend_launch *launch, CUlaunchAttribute ret[CUDA_ATTRIBUTES_MAX], unsigned *ret_count)
{
	unsigned count = launch->attribute_count;
	CUresult code;

	_Static_assert(CUDA_ATTRIBUTES_MAX == FRMPS_ATTRIBUTE_MAX + 1 + LOADER_ATTRIBUTES, "");
	if (count > FRMPS_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	code = cuda_attributes(launch->attributes, count, ret);
	if (code)
		return code;
	if (own_kernel(launch))
		loader_attributes(own_kernel(launch), ret, &count);
	if (launch->cooperative) {
		memset(&ret[count], 0, sizeof(ret[0]));
		ret[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		ret[count++].value.cooperative = 1;
	}
	*ret_count = count;
	return CUDA_SUCCESS;
}

static CUresult launch_with_config(
	CUstream stream, const struct backend_launch *launch, struct cuda_arguments *arguments)
{
	CUlaunchAttribute attributes[CUDA_ATTRIBUTES_MAX];
	CUlaunchConfig config = {
		.gridDimX = launch->grid[0],
		.gridDimY = launch->grid[1],
		.gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0],
		.blockDimY = launch->block[1],
		.blockDimZ = launch->block[2],
		.sharedMemBytes = cuda_shared(launch->function, launch->shared_bytes),
		.hStream = stream,
		.attrs = attributes,
	};
	CUresult code = cuda_launch_attributes(launch, attributes, &config.numAttrs);

	return code ? code
		    : driver.launch_config(
			      &config, cuda_function(launch->function), arguments->params, arguments->packed);
}

static CUresult launch_plain(
	CUstream stream, const struct backend_launch *launch, struct cuda_arguments *arguments)
{
	return driver.launch(cuda_function(launch->function), launch->grid[0], launch->grid[1],
		launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
		cuda_shared(launch->function, launch->shared_bytes), stream, arguments->params,
		arguments->packed);
}

CUresult cuda_launch(struct backend_stream *stream, const struct backend_launch *launch)
{
	const struct loader_kernel *own = own_kernel(launch);
	struct cuda_arguments arguments;
	CUresult code = cuda_launch_check(launch);

	if (code)
		return code;
	cuda_arguments_init(&arguments, launch);
	return launch->attribute_count || launch->cooperative || (own && !own->is_plain)
		       ? launch_with_config(cuda_stream(stream), launch, &arguments)
		       : launch_plain(cuda_stream(stream), launch, &arguments);
}
