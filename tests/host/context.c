// Opening and closing the pretended device for a role, and the table of the backend.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/host/host.h"

static bool pool_open;

/*
 * Compute modes. FRMPS_HOST_MODE names a file with a letter for each device: default, exclusive,
 * prohibited, or lost, a device that has no contexts any more. The last letter holds for those
 * behind it, too. Contexts are locks on that file, which end with their processes: shared locks in
 * the default mode.
 */

enum mode { DEFAULT = 'd', EXCLUSIVE = 'e', PROHIBITED = 'p', LOST = 'l' };

static int context_lock = -1;

/* @ret_fd: the file, of the caller; -1: there is none */
static enum mode read_mode(int device, int *ret_fd)
{
	const char *path = getenv("FRMPS_HOST_MODE");
	char modes[PLACE_DEVICES];
	ssize_t count;

	*ret_fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (!path)
		return DEFAULT;
	count = *ret_fd < 0 ? 0 : pread(*ret_fd, modes, sizeof(modes), 0);
	if (count <= 0)
		return PROHIBITED;
	return (enum mode)modes[device < count ? device : (int)count - 1];
}

/* As the driver does when a process makes a context. */
static CUresult take_context(int device)
{
	int fd;
	enum mode mode = read_mode(device, &fd);
	bool taken = mode == DEFAULT || mode == EXCLUSIVE;

	if (taken && fd >= 0)
		taken = !flock(fd, (mode == DEFAULT ? LOCK_SH : LOCK_EX) | LOCK_NB);
	if (!taken && fd >= 0)
		close(fd);
	if (taken)
		context_lock = fd;
	return taken	      ? CUDA_SUCCESS
	       : mode == LOST ? CUDA_ERROR_ECC_UNCORRECTABLE
			      : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static void drop_context(void)
{
	if (context_lock >= 0)
		close(context_lock);
	context_lock = -1;
}

/*
 * Roles
 */

static CUresult probe(struct backend_probe *ret_probe)
{
	int fd;

	*ret_probe = (struct backend_probe){.device_count = host_device_count()};
	for (int i = 0; i < ret_probe->device_count; i++) {
		enum mode mode = read_mode(i, &fd);

		if (fd >= 0)
			close(fd);
		ret_probe->exclusive |= (uint64_t)(mode == EXCLUSIVE) << i;
		ret_probe->unfit[i] = mode == PROHIBITED ? UNFIT_PROHIBITED : UNFIT_NOT;
		host_device_uuid(i, ret_probe->uuids[i]);
		for (int k = 0; k < ret_probe->device_count; k++)
			ret_probe->peers[i][k] = host_device_peer(i, k);
	}
	snprintf(ret_probe->text, sizeof(ret_probe->text),
		"The host backend runs kernels as C functions in a process of this machine.");
	return CUDA_SUCCESS;
}

static CUresult open_keeper(int device)
{
	return device >= 0 && device < host_device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult open_executor(int device, struct backend_device *ret_device)
{
	CUresult code;

	if (device < 0 || device >= host_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	code = take_context(device);
	if (!code)
		code = host_faults_init();
	if (!code)
		code = host_pool_init();
	if (code) {
		drop_context();
		return code;
	}
	pool_open = true;
	host_device_read(device, ret_device);
	return CUDA_SUCCESS;
}

static CUresult open_compiler(unsigned arch)
{
	(void)arch;
	return CUDA_SUCCESS;
}

static void close_backend(void)
{
	if (pool_open)
		host_pool_deinit();
	pool_open = false;
	host_memory_deinit();
	drop_context();
}

static CUresult thread_enter(void)
{
	return CUDA_SUCCESS;
}

/* Signals are faults here. */
static void thread_show(pthread_t thread)
{
	(void)thread;
}

const struct backend_ops backend_host = {
	.name = "host",
	.probe = probe,
	.open_keeper = open_keeper,
	.open_executor = open_executor,
	.open_compiler = open_compiler,
	.close = close_backend,
	.thread_enter = thread_enter,
	.fence = host_pool_fence,
	.thread_show = thread_show,
	.kernels_end = host_pool_end,
	.chunk_create = host_chunk_create,
	.chunk_release = host_chunk_release,
	.window_reserve = host_window_reserve,
	.window_release = host_window_release,
	.chunk_map = host_chunk_map,
	.chunk_unmap = host_chunk_unmap,
	.sink_open = host_sink_open,
	.sink_close = host_sink_close,
	.sink_map = host_sink_map,
	.sink_unmap = host_sink_unmap,
	.sink_mappings_max = HOST_SINK_MAPPINGS_MAX,
	.host_register = host_host_register,
	.host_unregister = host_host_unregister,
	.limit_set = host_limit_set,
	.memory_info = host_memory_info,
	.tensor_map = host_tensor_map,
	.link_create = host_link_create,
	.link_add = host_link_add,
	.link_complete = host_link_complete,
	.link_logs = host_link_logs,
	.link_destroy = host_link_destroy,
	.module_compile = host_module_compile,
	.module_load = host_module_load,
	.module_unload = host_module_unload,
	.module_waits = host_module_waits,
	.module_statics = host_module_statics,
	.function_find = host_function_find,
	.global_find = host_global_find,
	.function_list = host_function_list,
	.function_set = host_function_set,
	.occupancy = host_occupancy,
	.array_make = host_array_make,
	.array_back = host_array_back,
	.array_free = host_array_free,
	.object_make = host_object_make,
	.object_free = host_object_free,
	.object_settle = host_object_settle,
	.sms_make = host_sms_make,
	.stream_create = host_stream_create,
	.stream_destroy = host_stream_destroy,
	.stream_query = host_stream_query,
	.event_create = host_event_create,
	.event_destroy = host_event_destroy,
	.event_record = host_event_record,
	.event_time = host_event_read,
	.stream_wait = host_stream_wait,
	.launch = host_launch,
	.copy = host_copy,
	.set = host_set,
	.write_value = host_write,
	.check = host_check_memory,
	.graph_make = host_graph_make,
	.graph_free = host_graph_free,
	.graph_change = host_graph_change,
	.graph_launch = host_graph_launch,
	.mark = host_mark,
};

/* BACKEND_SYMBOL. */
extern const struct backend_ops backend_loaded __attribute__((alias("backend_host")));
