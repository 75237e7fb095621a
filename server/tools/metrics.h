// The service's status in Prometheus's format.

#ifndef FRMPS_SERVER_TOOLS_METRICS_H
#define FRMPS_SERVER_TOOLS_METRICS_H

#include <jansson.h>

/**
 * Renders a status document (control/status.c) in Prometheus' text format, version 0.0.4.
 * @status: NULL: the service did not answer; then frmps_up is 0, and there is nothing else
 * Return: the text, the caller's; NULL without memory. Any thread.
 */
char *metrics_text(const json_t *status);

/**
 * The same for a service with several devices: each sample has its device's number as the label
 * gpu.
 * @statuses: by number
 */
char *metrics_of_devices(json_t *const *statuses, unsigned count);

#endif
