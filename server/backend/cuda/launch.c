// Kernel launches: the hot operation of the backend. No allocation, no lock, no lookup: the packed
// argument bytes of a record already have the layout of the kernel's parameters, so the driver gets
// pointers into them.
//
// Executor threads; several at once for different streams.

#include <string.h>

#include "server/backend/cuda/cuda.h"

_Static_assert(sizeof(struct frmps_launch_attribute) == sizeof(CUlaunchAttribute) &&
		       offsetof(struct frmps_launch_attribute, value) == offsetof(CUlaunchAttribute, value),
	"an attribute on the ring has the driver's form");

void cuda_arguments_init(struct cuda_arguments *arguments, const struct backend_launch *launch)
{
	const struct backend_function_info *info = launch->info;
	uint8_t *bytes = (uint8_t *)(uintptr_t)launch->arguments;

	arguments->params = NULL;
	arguments->packed = NULL;
	if (info->param_count && info->param_count <= CUDA_POINTERS_MAX) {
		for (uint32_t i = 0; i < info->param_count; i++)
			arguments->pointers[i] = bytes + info->params[i].offset;
		arguments->params = arguments->pointers;
	} else if (launch->argument_bytes) {
		arguments->bytes = launch->argument_bytes;
		arguments->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
		arguments->extra[1] = bytes;
		arguments->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
		arguments->extra[3] = &arguments->bytes;
		arguments->extra[4] = CU_LAUNCH_PARAM_END;
		arguments->packed = arguments->extra;
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

static CUresult launch_with_config(
	CUstream stream, const struct backend_launch *launch, struct cuda_arguments *arguments)
{
	CUlaunchAttribute attributes[FRMPS_ATTRIBUTE_MAX + 1];
	CUlaunchConfig config = {
		.gridDimX = launch->grid[0],
		.gridDimY = launch->grid[1],
		.gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0],
		.blockDimY = launch->block[1],
		.blockDimZ = launch->block[2],
		.sharedMemBytes = launch->shared_bytes,
		.hStream = stream,
		.attrs = attributes,
		.numAttrs = launch->attribute_count,
	};
	CUresult code;

	if (launch->attribute_count > FRMPS_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	code = cuda_attributes(launch->attributes, launch->attribute_count, attributes);
	if (code)
		return code;
	if (launch->cooperative) {
		memset(&attributes[config.numAttrs], 0, sizeof(attributes[0]));
		attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		attributes[config.numAttrs++].value.cooperative = 1;
	}
	return driver.launch_config(
		&config, cuda_function(launch->function), arguments->params, arguments->packed);
}

static CUresult launch_plain(
	CUstream stream, const struct backend_launch *launch, struct cuda_arguments *arguments)
{
	return driver.launch(cuda_function(launch->function), launch->grid[0], launch->grid[1],
		launch->grid[2], launch->block[0], launch->block[1], launch->block[2], launch->shared_bytes,
		stream, arguments->params, arguments->packed);
}

CUresult cuda_launch(struct backend_stream *stream, const struct backend_launch *launch)
{
	struct cuda_arguments arguments;

	if (launch->argument_bytes < launch->info->argument_bytes)
		return CUDA_ERROR_INVALID_VALUE; /* the driver would read past the record */
	cuda_arguments_init(&arguments, launch);
	return launch->attribute_count || launch->cooperative
		       ? launch_with_config(cuda_stream(stream), launch, &arguments)
		       : launch_plain(cuda_stream(stream), launch, &arguments);
}
