// The GPUs of the machine, which NVIDIA's NVML shows a program, beside those of the service,
// which CUDA shows the program. A program that takes the one number for the other may fail.

#ifndef FRMPS_SERVER_TOOLS_GPUS_H
#define FRMPS_SERVER_TOOLS_GPUS_H

#include <stdbool.h>

#include "protocol/place.h"
#include "server/tools/ask.h"

#define GPUS_LIST_BYTES (PLACE_DEVICES * sizeof(((struct ask_devices *)0)->uuid[0]))

/** Counts device files: NVML shows a process the GPUs whose files it has. @root: in front of /dev.
 * Return: the number of GPUs that NVML can show; 0: none, or unknown */
unsigned gpus_count(const char *root);

/**
 * Lists the UUIDs of those of the service's devices that answer, as CUDA_VISIBLE_DEVICES takes
 * them, if they are fewer than the machine's GPUs.
 * @gpus: of the machine
 * Return: false if they are not, or if no device answers
 */
bool gpus_list_fewer(const struct ask_devices *devices, unsigned gpus, char ret_list[GPUS_LIST_BYTES]);

#endif
