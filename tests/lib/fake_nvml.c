// A library in the place of NVIDIA's libnvidia-ml.so.1, as far as the service uses it (FRMPS_NVML),
// and with some calls that ours passes on (client/nvml/). A GPU is known by the last digit of its
// UUID.
// Events are what is written into the FIFO that FRMPS_TEST_NVML names: one byte each, the number of
// the Xid. Without the variable the library refuses its service.

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct event {
	void *device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int code);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlEventSetCreate(void **set);
EXPORT int nvmlEventSetFree(void *set);
EXPORT int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
EXPORT int nvmlEventSetWait_v2(void *set, struct event *event, unsigned ms);

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORT int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(void *device, unsigned link, char *pci);
EXPORT int nvmlDeviceGetP2PStatus(void *one, void *other, int way, int *status);

static char gpus[16]; /* their addresses are handles */
static char *registered;

/* A set has a file of its own, as in the driver's library. */
static int fifo = -1, events = -1;

int nvmlInit_v2(void)
{
	const char *path = getenv("FRMPS_TEST_NVML");

	if (!path)
		return 4;
	/* For writing as well: a writer that ends is no end of the events. */
	fifo = open(path, O_RDWR | O_CLOEXEC);
	return fifo < 0 ? 999 : 0;
}

int nvmlShutdown(void)
{
	close(fifo);
	return 0;
}

const char *nvmlErrorString(int code)
{
	return code == 4 ? "Insufficient Permissions" : "Unknown Error";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	if (strncmp(uuid, "GPU-", 4) || strlen(uuid) != 40)
		return 2;
	*device = &gpus[strtoul(uuid + 39, NULL, 16)];
	return 0;
}

static int is_gpu(const char *device)
{
	return device >= gpus && device < gpus + sizeof(gpus);
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	return snprintf(text, size, "999.1") < (int)size ? 0 : 7;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2])
{
	rates[0] = 70;
	rates[1] = 30;
	return is_gpu(device) ? 0 : 2;
}

int nvmlDeviceGetNvLinkRemotePciInfo(void *device, unsigned link, char *pci)
{
	sprintf(pci, "GPU %d, link %u", is_gpu(device) ? (int)((char *)device - gpus) : -1, link);
	return 0;
}

/* NVLink is there; a key of the registry disables other ways, reads too. */
int nvmlDeviceGetP2PStatus(void *one, void *other, int way, int *status)
{
	*status = way == 2 ? 0 : 4;
	return is_gpu(one) && is_gpu(other) && way <= 4 ? 0 : 2;
}

int nvmlEventSetCreate(void **set)
{
	events = dup(fifo);
	*set = &events;
	return events < 0 ? 999 : 0;
}

int nvmlEventSetFree(void *set)
{
	if (set != &events)
		return 2;
	close(events);
	events = -1;
	return 0;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
	registered = device;
	return is_gpu(device) && set == &events && types == 8 ? 0 : 2;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned ms)
{
	struct pollfd poller = {.fd = events, .events = POLLIN};
	unsigned char number;

	if (set != &events)
		return 2;
	if (poll(&poller, 1, (int)ms) <= 0)
		return 10;
	if (read(events, &number, 1) != 1)
		return 999;
	*event = (struct event){.device = registered, .type = 8, .data = number};
	return 0;
}
