// A library in the place of NVIDIA's libnvidia-ml.so.1, as far as the service uses it (FRMPS_NVML),
// and with two calls that ours passes on (client/nvml/).
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
	*device = &fifo;
	return strncmp(uuid, "GPU-", 4) || strlen(uuid) != 40 ? 2 : 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	return snprintf(text, size, "999.1") < (int)size ? 0 : 7;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2])
{
	rates[0] = 70;
	rates[1] = 30;
	return device == &fifo ? 0 : 2;
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
	return device == &fifo && set == &events && types == 8 ? 0 : 2;
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
	*event = (struct event){.device = &fifo, .type = 8, .data = number};
	return 0;
}
