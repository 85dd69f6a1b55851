// A fault of one view leaves the others usable.

import { type ComponentChildren, Component } from "preact";

export class Boundary extends Component<{ children: ComponentChildren }, { fault: string | null }> {
  override state = { fault: null };

  override componentDidCatch(error: unknown): void {
    // For whoever looks at the browser's console, and for the tests.
    console.error(error);
    this.setState({ fault: String(error) });
  }

  override render() {
    if (this.state.fault === null) return this.props.children;
    return (
      <div class="trouble" role="alert">
        <strong>This view has failed</strong>
        <p>{this.state.fault}</p>
        <button type="button" onClick={() => this.setState({ fault: null })}>
          Try again
        </button>
      </div>
    );
  }
}
