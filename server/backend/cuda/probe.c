// Can this machine run the cuda backend? Asked by the daemon, which must stay free of the driver:
// the question is answered by a short-lived child, so that no driver thread, device descriptor or
// broken library remains in the asking process. Called before the process starts threads.

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/await.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/peers.h"

/* A driver that has to load firmware and wake many devices may need many seconds; longer than this
 * means a hang. */
#define PATIENCE_MS 60000

struct answer {
	CUresult code;
	struct backend_probe probe;
};

/* Explains a failure of cuInit, as far as the device nodes allow. */
static void explain_init(CUresult code, char *text, size_t size)
{
	if (access("/dev/nvidiactl", F_OK))
		snprintf(text, size,
			"There is a driver library but no /dev/nvidiactl: the kernel module is not loaded, "
			"or this container does not see the devices.");
	else if (access("/dev/nvidiactl", R_OK | W_OK))
		snprintf(text, size, "No permission on /dev/nvidiactl: %s.", strerror(errno));
	else
		snprintf(text, size, "The NVIDIA driver does not start (cuInit returns %d).", (int)code);
}

static unsigned ask_peer(CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
	int value = 0;

	return driver.device_peer(&value, attribute, device, peer) || value < 0 ? 0 : (unsigned)value;
}

static uint8_t examine_peer(CUdevice device, CUdevice peer)
{
	unsigned rank = ask_peer(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, device, peer);

	if (!ask_peer(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, peer))
		return 0;
	return wire_peer(ask_peer(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, peer), rank);
}

/* The driver numbers devices from 0. */
static void examine_peers(struct backend_probe *probe)
{
	for (int i = 0; i < probe->device_count; i++)
		for (int k = 0; k < probe->device_count; k++)
			if (probe->unfit[i] == UNFIT_NOT && probe->unfit[k] == UNFIT_NOT)
				probe->peers[i][k] = i == k ? wire_peer(true, 0) : examine_peer(i, k);
}

static void examine_device(struct backend_probe *probe, int i)
{
	CUdevice device;
	CUuuid uuid;

	if (driver.device_get(&device, i) || driver.device_uuid(&uuid, device)) {
		probe->unfit[i] = UNFIT_SILENT;
		return;
	}
	memcpy(probe->uuids[i], uuid.bytes, sizeof(probe->uuids[i]));
	probe->unfit[i] = (uint8_t)cuda_device_unfit(device);
	if (cuda_device_is_exclusive(device))
		probe->exclusive |= UINT64_C(1) << i;
}

static CUresult examine(struct backend_probe *probe)
{
	CUresult code = driver_open(probe->text, sizeof(probe->text));
	int count = 0;

	if (code)
		return code;
	code = driver.init(0);
	if (code) {
		explain_init(code, probe->text, sizeof(probe->text));
		return code;
	}
	code = driver.device_count(&count);
	if (code || count < 1) {
		snprintf(probe->text, sizeof(probe->text), "The NVIDIA driver sees no device.");
		return code ? code : CUDA_ERROR_NO_DEVICE;
	}
	if (count > (int)PLACE_DEVICES)
		count = (int)PLACE_DEVICES;
	for (int i = 0; i < count; i++)
		examine_device(probe, i);
	probe->device_count = count;
	examine_peers(probe);
	snprintf(probe->text, sizeof(probe->text), "%d device%s, driver for CUDA %d.%d in %.160s.", count,
		count == 1 ? "" : "s", driver.version / 1000, driver.version % 1000 / 10, driver.path);
	return CUDA_SUCCESS;
}

static void child_main(int fd)
{
	struct answer answer = {0};
	ssize_t written;

	answer.code = examine(&answer.probe);
	written = write(fd, &answer, sizeof(answer)); /* no more than a pipe holds */
	_exit(written == (ssize_t)sizeof(answer) ? 0 : 1);
}

static CUresult failed(struct backend_probe *ret_probe, const char *why)
{
	memset(ret_probe, 0, sizeof(*ret_probe));
	snprintf(ret_probe->text, sizeof(ret_probe->text), "%s", why);
	return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuda_probe(struct backend_probe *ret_probe)
{
	struct answer answer;
	int ends[2];
	pid_t child;
	bool heard;

	if (pipe2(ends, O_CLOEXEC))
		return failed(ret_probe, "The driver cannot be examined: no descriptors left.");
	child = fork();
	if (child < 0) {
		close(ends[0]);
		close(ends[1]);
		return failed(ret_probe, "The driver cannot be examined: no process can be made.");
	}
	if (!child)
		child_main(ends[1]);
	close(ends[1]);
	heard = !await_answer(ends[0], PATIENCE_MS, &answer, sizeof(answer));
	close(ends[0]);
	if (!heard)
		kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (!heard)
		return failed(ret_probe, "The NVIDIA driver library crashed or did not answer.");
	*ret_probe = answer.probe;
	if (!answer.code)
		cuda_peers_try(ret_probe);
	return answer.code;
}
