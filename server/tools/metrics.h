// The service's status in Prometheus's format.

#ifndef FRMPS_SERVER_TOOLS_METRICS_H
#define FRMPS_SERVER_TOOLS_METRICS_H

#include <jansson.h>

/**
 * Renders status documents (control/status.c) in Prometheus' text format, version 0.0.4.
 * @statuses: by number of the device; NULL: the device does not answer: then its frmps_up is 0, and
 * there is nothing else of it
 * @count: of several devices, each sample has the device's number as the label gpu
 * Return: the text, the caller's; NULL without memory. Any thread.
 */
char *metrics_text(json_t *const *statuses, unsigned count);

#endif
