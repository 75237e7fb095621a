// frmpsctl events: what has happened, and what happens from now on, from documents of the service
// (control/events.c). One thread; blocks.

#ifndef FRMPS_SERVER_TOOLS_EVENTS_H
#define FRMPS_SERVER_TOOLS_EVENTS_H

#include <stdio.h>

struct call;

/**
 * Prints the events that the service keeps, the latest last. With call->follow it goes on with
 * those that come, until the service ends; a line says how many there were that the service did not
 * keep until they were asked for. With call->json that is one document, and with both one in each
 * line, {"missed": NUMBER} for those that are lost.
 * Return: exit code of the program, which has said why
 */
int events_show(const struct call *call, FILE *out);

#endif
