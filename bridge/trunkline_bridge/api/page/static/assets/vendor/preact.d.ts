// Types of preact.js; written by scripts/vendor_page.
export { Component, Fragment, createContext, createRef, h, render } from "preact";
export {
    useCallback,
    useContext,
    useEffect,
    useErrorBoundary,
    useId,
    useLayoutEffect,
    useMemo,
    useReducer,
    useRef,
    useState,
} from "preact/hooks";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";
export { html } from "htm/preact";
